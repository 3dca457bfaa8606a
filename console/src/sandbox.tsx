/** One sandbox: what it is and does, and everything that can be done to it. */
import type { BothyEvent, Metrics, NetworkDecision, NetworkPolicy, ProcessInfo, Sandbox } from "bothy";
import { useEffect, useRef, useState } from "preact/hooks";
import { Code } from "./code";
import { Logs } from "./logs";
import { FilesTab } from "./files";
import { networkText } from "./list";
import { bothy, isLive, type Login, may } from "./server";
import { TerminalTab } from "./terminal";
import { A, Button, bytes, Time, Trouble, useRead, useTrouble } from "./ui";

const tabs = ["overview", "terminal", "files", "code", "processes", "network", "ports", "logs"];

export function SandboxPage({ id, tab, login }: { id: string; tab: string; login: Login }) {
  const { value: sandbox, trouble, again } = useRead(() => bothy.sandboxes.get(id), id, 5);
  const [failed, attempt] = useTrouble();
  const write = may(login, "sandboxes:write");
  if (!sandbox) return <main><Trouble text={trouble} />{!trouble && <p role="status">Reading {id}…</p>}</main>;
  const s = sandbox.info;
  const act = (work: () => Promise<unknown>) => attempt(async () => (await work(), await again()));
  const live = isLive(s);
  return (
    <main>
      <div class="bar">
        <h1>{s.name ?? s.id} <span class={`state ${s.state}`}>{s.state}</span></h1>
        {write && live && (
          <>
            {s.state === "paused" ? <Button work={() => act(() => sandbox.resume())}>Resume</Button> : <Button work={() => act(() => sandbox.pause())}>Pause</Button>}
            <Button work={() => act(() => sandbox.snapshot())}>Snapshot</Button>
            <Button work={() => act(() => sandbox.fork(1))}>Fork</Button>
            <Button kind="danger" work={() => act(async () => confirm(`Terminate ${s.id}?`) && sandbox.terminate())}>Terminate</Button>
          </>
        )}
      </div>
      <Trouble text={failed || trouble} />
      <nav class="tabs" aria-label="Parts">{tabs.filter((t) => write || !["terminal", "code"].includes(t)).map((t) => <A key={t} to={`sandboxes/${id}/${t}`} current={t === tab}>{t}</A>)}</nav>
      {tab === "overview" && <Overview sandbox={sandbox} />}
      {tab === "terminal" && write && <TerminalTab sandbox={sandbox} />}
      {tab === "files" && <FilesTab sandbox={sandbox} write={write} />}
      {tab === "code" && write && <Code sandbox={sandbox} />}
      {tab === "processes" && <Processes sandbox={sandbox} write={write} />}
      {tab === "network" && <NetworkTab sandbox={sandbox} write={write} again={again} />}
      {tab === "ports" && <Ports sandbox={sandbox} write={write} />}
      {tab === "logs" && <Logs sandbox={sandbox} />}
    </main>
  );
}

/** What events are called where people read them. */
const said: Record<string, string> = {
  "sandbox.created": "Created", "sandbox.updated": "Changed", "sandbox.paused": "Paused", "sandbox.resumed": "Resumed", "sandbox.forked": "Forked",
  "sandbox.rolled_back": "Rolled back", "sandbox.unattached": "Not taken over yet", "sandbox.ended": "Ended", "sandbox.oom_killed": "Out of memory",
  "snapshot.created": "Snapshot taken", "snapshot.deleted": "Snapshot deleted", "budget.warning": "Budget nearly used", "budget.exceeded": "Budget used up",
};

function Overview({ sandbox }: { sandbox: Sandbox }) {
  const s = sandbox.info;
  const [events, setEvents] = useState<BothyEvent[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    void (async () => {
      for await (const e of sandbox.events({ signal: stop.signal })) setEvents((old) => [...old, e]);
    })().catch(() => undefined);
    return () => stop.abort();
  }, [s.id]);
  return (
    <>
      <dl>
        <dt>Id</dt><dd><code>{s.id}</code></dd><dt>Template</dt><dd>{s.template}</dd><dt>Engine</dt><dd>{s.engine} {s.acceleration}</dd>
        <dt>Size</dt><dd>{s.cpu} CPUs, {s.memoryMb} MB memory, {s.diskMb} MB disk</dd>
        <dt>Time left</dt><dd><Time at={s.expiresAt} left />, then it will {s.onTimeout}</dd>
        {s.secretNames && <><dt>Secrets</dt><dd>{s.secretNames.map((n) => <code key={n} class="label">{n}</code>)} <small>Their values stay with the server.</small></dd></>}
        {s.ended && <><dt>Ended</dt><dd>{s.ended.reason}: {s.ended.detail}</dd></>}
        {s.metadata && <><dt>Labels</dt><dd>{Object.entries(s.metadata).map(([k, v]) => <span key={k} class="label">{k}={v}</span>)}</dd></>}
      </dl>
      {s.state === "running" && <Plots sandbox={sandbox} />}
      <h2>Its life</h2>
      <ol class="life">{events.map((e) => <li key={e.id}><time dateTime={new Date(e.time).toISOString()} title={new Date(e.time).toISOString()}>{new Date(e.time).toLocaleTimeString()}</time> <b>{said[e.type] ?? e.type}</b> {e.data?.reason && <i>{e.data.reason.replaceAll("_", " ")}</i>} {Object.entries(e.data ?? {}).filter(([k, v]) => k !== "reason" && v).map(([k, v]) => (k === "detail" ? v : `${k}: ${v}`)).join(", ")}</li>)}</ol>
    </>
  );
}

function Plots({ sandbox }: { sandbox: Sandbox }) {
  const [seen, setSeen] = useState<Metrics[]>([]);
  const { value, trouble } = useRead(() => sandbox.metrics(), sandbox.id, 2);
  useEffect(() => {
    if (value) setSeen((old) => [...old, value].slice(-120));
  }, [value]);
  const rate = (of: (m: Metrics) => number) =>
    seen.slice(1).map((m, i) => Math.max(0, of(m) - of(seen[i]!)) / Math.max(0.001, (+new Date(m.time) - +new Date(seen[i]!.time)) / 1000));
  return (
    <div class="plots">
      <Trouble text={trouble} />
      <Plot name="CPU" values={rate((m) => m.cpuSeconds)} text={(v) => `${(v * 100).toFixed(0)} %`} />
      <Plot name="Memory" values={seen.map((m) => m.memoryBytes)} text={bytes} />
      <Plot name="Disk" values={seen.map((m) => m.diskBytes)} text={bytes} />
      <Plot name="Network" values={rate((m) => m.egressBytes + m.ingressBytes)} text={(v) => `${bytes(v)}/s`} />
    </div>
  );
}

export function Plot({ name, values, text }: { name: string; values: number[]; text: (v: number) => string }) {
  const top = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${(i / Math.max(1, values.length - 1)) * 240},${60 - (v / top) * 56}`).join(" ");
  const last = values.at(-1);
  return (
    <figure>
      <figcaption>{name} <b>{last === undefined ? "…" : text(last)}</b></figcaption>
      <svg viewBox="0 0 240 62" role="img" aria-label={`${name} over time`}><polyline points={points} /></svg>
    </figure>
  );
}

function Processes({ sandbox, write }: { sandbox: Sandbox; write: boolean }) {
  const { value, trouble, again } = useRead(() => sandbox.processes(), sandbox.id, 3);
  const [failed, attempt] = useTrouble();
  const send = (p: ProcessInfo, signal: "SIGINT" | "SIGTERM" | "SIGKILL") => attempt(async () => (await sandbox.process(p.pid).signal(signal), await again()));
  return (
    <>
      <Trouble text={failed || trouble} />
      {value?.length === 0 && <p>Nothing was started here yet.</p>}
      <table><thead><tr><th>PID</th><th>Command</th><th>State</th><th>Signals</th></tr></thead>
        <tbody>{value?.map((p) => (
          <tr key={p.pid}><td>{p.pid}</td><td><code>{p.command.join(" ")}</code></td><td>{p.running ? "running" : `ended with ${p.exitCode}`}</td>
            <td>{write && p.running && (["SIGINT", "SIGTERM", "SIGKILL"] as const).map((n) => <Button key={n} work={() => send(p, n)}>{n}</Button>)}</td></tr>
        ))}</tbody></table>
    </>
  );
}

function NetworkTab({ sandbox, write, again }: { sandbox: Sandbox; write: boolean; again: () => Promise<void> }) {
  const [lines, setLines] = useState<NetworkDecision[]>([]);
  const [trouble, attempt] = useTrouble();
  useEffect(() => {
    const stop = new AbortController();
    void attempt(async () => {
      for await (const d of sandbox.followNetworkLog({ signal: stop.signal })) setLines((old) => [d, ...old].slice(0, 500));
    });
    return () => stop.abort();
  }, [sandbox.id]);
  const { network } = sandbox.info;
  const policy: NetworkPolicy = typeof network === "string" ? { mode: network } : network;
  const allow = (name: string) => attempt(async () => {
    const mode = policy.mode === "off" ? "restricted" : policy.mode;
    await sandbox.setNetwork({ ...policy, mode, allowDomains: [...(policy.allowDomains ?? []), name] });
    await again();
  });
  return (
    <>
      <p>The policy is <b>{networkText(network)}</b>{policy.allowDomains?.length ? `, with ${policy.allowDomains.join(", ")}` : ""}.</p>
      <Trouble text={trouble} />
      {lines.length === 0 && <p role="status">Nothing was tried yet. What it tries to reach appears here.</p>}
      <table><thead><tr><th>Time</th><th>Host</th><th>Port</th><th>Protocol</th><th>Decision</th><th>Why</th><th><span class="hidden">Act</span></th></tr></thead>
        <tbody>{lines.map((d, i) => (
          <tr key={i}><td>{new Date(d.time).toLocaleTimeString()}</td><td>{d.name ?? d.address}</td><td>{d.port}</td><td>{d.protocol}</td>
            <td class={d.allowed ? "yes" : "no"}>{d.allowed ? "allowed" : "refused"}</td><td>{d.rule ?? d.reason}</td>
            <td>{write && !d.allowed && d.name && !policy.allowDomains?.includes(d.name) && <Button work={() => allow(d.name!)}>Allow this host</Button>}</td></tr>
        ))}</tbody></table>
    </>
  );
}

function Ports({ sandbox, write }: { sandbox: Sandbox; write: boolean }) {
  const { value, trouble, again } = useRead(() => sandbox.links(), sandbox.id);
  const [failed, attempt] = useTrouble();
  const [opened, setOpened] = useState("");
  const port = useRef<HTMLInputElement>(null);
  const make = () => attempt(async () => {
    setOpened((await sandbox.createLink(Number(port.current!.value))).url);
    await again();
  });
  return (
    <>
      <Trouble text={failed || trouble} />
      {write && <div class="bar"><label>Port <input ref={port} type="number" min={1} max={65535} value="8000" /></label><Button work={make}>Make a link</Button></div>}
      {opened && <p><a href={opened} target="_blank" rel="noopener noreferrer">{new URL(opened).host}</a></p>}
      {value?.length === 0 && <p>No link leads to a port of this sandbox.</p>}
      <ul>{value?.map((l) => <li key={l.id}>{l.port}, {l.kind}, ends in <Time at={l.expiresAt} left /> {write && <Button work={() => attempt(async () => (await sandbox.deleteLink(l.id), await again()))}>Revoke</Button>}</li>)}</ul>
    </>
  );
}

