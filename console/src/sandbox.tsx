/** One sandbox: what it is and does, and everything that can be done to it. */
import type { BothyEvent, Sandbox } from "bothy";
import { useEffect, useState } from "preact/hooks";
import { Code } from "./code";
import { Life } from "./events";
import { FilesTab } from "./files";
import { networkText } from "./list";
import { Logs } from "./logs";
import { NetworkTab, Ports } from "./network";
import { Plots } from "./plots";
import { Processes } from "./processes";
import { bothy, isLive, type Login, may } from "./server";
import { Settings } from "./settings";
import { useStream } from "./stream";
import { TerminalTab } from "./terminal";
import { A, Button, Empty, Moment, span, setTitle, Time, Trouble, useRead, useTrouble } from "./ui";

const tabs = ["overview", "terminal", "files", "code", "processes", "network", "ports", "logs", "settings"];

export function SandboxPage({ id, tab, folder, login }: { id: string; tab: string; folder: string; login: Login }) {
  const { value: sandbox, trouble, again } = useRead(() => bothy.sandboxes.get(id), id, 5);
  const [life, setLife] = useState<BothyEvent[]>([]);
  const connected = useStream(async (signal, stands) => {
    const past: BothyEvent[] = [];
    for await (const e of bothy.events({ follow: false, sandboxId: id, signal })) past.push(e);
    setLife(past);
    await again();
    stands();
    for await (const e of bothy.events({ since: past.at(-1)?.id, sandboxId: id, rejoin: false, signal })) {
      setLife((old) => [...old, e]);
      void again();
    }
  }, id);
  const [failed, attempt] = useTrouble();
  const name = sandbox?.info.name;
  useEffect(() => void (name && setTitle(tab === "overview" ? "" : tab, name)), [name, tab]);
  const write = may(login, "sandboxes:write");
  if (!sandbox) return <main><p><A to="sandboxes">Sandboxes</A></p><Trouble text={trouble} />{!trouble && <p class="waits" role="status">Reading {id}…</p>}</main>;
  const s = sandbox.info;
  const act = (work: () => Promise<unknown>) => attempt(async () => (await work(), await again()));
  const live = isLive(s);
  const shown = tabs.filter((t) => (live || ["overview", "network", "logs"].includes(t)) && (write || !["terminal", "code", "settings"].includes(t)));
  return (
    <main>
      <div class="bar">
        <h1>{s.name ?? s.id} <span class={`state ${s.state}`}>{s.state}</span></h1>
        {write && live && (
          <>
            {s.state !== "paused" && <Button work={() => act(() => sandbox.pause())}>Pause</Button>}
            <Button work={() => act(() => sandbox.snapshot())}>Snapshot</Button>
            <Button work={() => act(() => sandbox.fork(1))}>Fork</Button>
            <Button kind="danger" work={() => act(async () => confirm(`Terminate ${s.name ?? s.id}?`) && sandbox.terminate())}>Terminate</Button>
          </>
        )}
      </div>
      {!connected && <p class="lost" role="status">The connection to the server is lost. Trying again…</p>}
      <Trouble text={failed || (connected ? trouble : "")} />
      <nav class="tabs" aria-label="Parts">{shown.map((t) => <A key={t} to={`sandboxes/${id}/${t}`} current={t === tab}>{t}</A>)}</nav>
      {s.state === "paused" && <p class="note paused">It is paused: it keeps its memory and files, and takes up no CPU. {write && <Button kind="main" work={() => act(() => sandbox.resume())}>Resume</Button>}</p>}
      {!shown.includes(tab) && <Empty><p>{tabs.includes(tab) ? (live ? "Your key may only read." : `This sandbox has ended: ${s.ended?.detail ?? s.ended?.reason ?? ""}`) : "There is no such part of a sandbox."}</p></Empty>}
      {shown.includes(tab) && (
        <>
          {tab === "overview" && <Overview sandbox={sandbox} life={life} act={act} write={write && live} />}
          {/* What holds text of the visitor is hidden by a pause, and not lost. */}
          <div hidden={s.state === "paused"}>
            {tab === "terminal" && <TerminalTab sandbox={sandbox} pid={folder === "/" ? NaN : Number(folder.slice(1)) || 0} paused={s.state === "paused"} />}
            {tab === "files" && <FilesTab sandbox={sandbox} folder={folder} write={write} paused={s.state === "paused"} />}
            {tab === "code" && <Code sandbox={sandbox} />}
          </div>
          {tab === "processes" && s.state !== "paused" && <Processes sandbox={sandbox} write={write} />}
          {tab === "network" && <NetworkTab sandbox={sandbox} write={write && live} again={again} />}
          {tab === "ports" && s.state !== "paused" && <Ports sandbox={sandbox} write={write} />}
          {tab === "logs" && <Logs sandbox={sandbox} />}
          {tab === "settings" && <Settings key={id} sandbox={sandbox} again={again} />}
        </>
      )}
    </main>
  );
}

function Overview({ sandbox, life, act, write }: { sandbox: Sandbox; life: BothyEvent[]; act: (work: () => Promise<unknown>) => Promise<void>; write: boolean }) {
  const s = sandbox.info;
  return (
    <>
      {s.state === "running" && <Plots sandbox={sandbox} events={life} />}
      <div class="cards" style={{ marginTop: "1rem" }}>
        <section class="card"><h2>Details</h2>
          <dl>
            <dt>Id</dt><dd><code>{s.id}</code></dd><dt>Template</dt><dd>{s.template}</dd><dt>Engine</dt><dd>{s.engine} {s.acceleration}</dd>
            <dt>Size</dt><dd>{s.cpu} {s.cpu === 1 ? "CPU" : "CPUs"}, {s.memoryMb} MiB memory, {s.diskMb} MiB disk</dd><dt>Network</dt><dd>{networkText(s.network)}</dd>
            <dt>Created</dt><dd><Moment at={s.createdAt} /></dd>
            {!s.ended && <><dt>Time left</dt><dd>{s.expiresAt ? <><Time at={s.expiresAt} left />, then it will {s.onTimeout}</> : "no limit"} {write && s.expiresAt && <Button kind="quiet" work={() => act(() => sandbox.setTimeout(3600))}>Set to an hour</Button>}</dd></>}
            {s.parentSandboxId && <><dt>Copy of</dt><dd><A to={`sandboxes/${s.parentSandboxId}`}><code>{s.parentSandboxId}</code></A>{s.forkedAt && <>, as it was on <Moment at={s.forkedAt} /></>} · <A to="snapshots">family</A></dd></>}
            {s.secretNames && <><dt>Secrets</dt><dd>{s.secretNames.map((n) => <code key={n} class="label">{n}</code>)} <small>Their values stay with the server.</small></dd></>}
            {s.health && <><dt>Trouble</dt><dd><b class="warn">{s.health.status.replaceAll("_", " ")}</b> {s.health.detail} {s.health.hint} <small><Time at={s.health.at} /></small></dd></>}
            {s.ended && <><dt>Ended</dt><dd><b>{s.ended.reason.replaceAll("_", " ")}</b> {s.ended.detail}</dd></>}
            {!!s.checkpointSeconds && <><dt>Checkpoints</dt><dd>every {span(s.checkpointSeconds)}{s.checkpointAt && <>, the last <Time at={s.checkpointAt} /></>}</dd></>}
            {s.onHostLoss !== "pause" && <><dt>If its host is lost</dt><dd>{s.onHostLoss === "fail" ? "it ends" : "another host resumes it"}</dd></>}
            {s.hostLabels && <><dt>Only on hosts with</dt><dd>{Object.entries(s.hostLabels).map(([k, v]) => <span key={k} class="label">{k}={v}</span>)}</dd></>}
            {s.metadata && <><dt>Labels</dt><dd>{Object.entries(s.metadata).map(([k, v]) => <span key={k} class="label">{k}={v}</span>)}</dd></>}
          </dl>
        </section>
        <section class="card"><h2>Activity</h2><Life events={life} /></section>
      </div>
    </>
  );
}
