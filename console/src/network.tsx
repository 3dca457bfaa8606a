/** What a sandbox tries to reach, and the links that reach it. */
import type { Link, Network, NetworkDecision, NetworkMode, NetworkPolicy, ProcessInfo, Sandbox } from "bothy";
import { useRef, useState } from "preact/hooks";
import { networkText, words } from "./list";
import { line } from "./processes";
import { useStream } from "./stream";
import { Button, bytes, Command, Empty, Moment, Time, Trouble, useRead, useTrouble } from "./ui";

/** The lists of destinations that every server knows. */
const presets = ["pypi", "npm", "github", "go", "debian", "crates", "llm"];

/** A policy with all its fields: "restricted" alone means all presets, and an object exactly what it lists. */
const whole = (n: Network): NetworkPolicy => (typeof n === "object" ? n : n === "restricted" ? { mode: n, presets } : { mode: n });

const lines = (list?: (string | number)[]) => (list ?? []).join("\n");

/** What the sandbox may reach, to be changed while it runs. */
function Policy({ network, save }: { network: Network; save: (policy: NetworkPolicy) => Promise<void> }) {
  const form = useRef<HTMLFormElement>(null);
  const now = whole(network);
  const [mode, setMode] = useState<NetworkMode>(now.mode ?? "restricted");
  const submit = () => {
    const f = new FormData(form.current!);
    const list = (name: string) => words(String(f.get(name) ?? ""));
    const chosen = f.getAll("preset").map(String);
    const others = now.presets?.filter((p) => !presets.includes(p)) ?? []; // of a newer server
    const rules = { allowDomains: list("domains"), allowCidrs: list("cidrs"), allowPorts: list("ports")?.map(Number) };
    return save(mode === "off" ? { mode } : mode === "open" ? { mode, ...rules, denyCidrs: list("deny") } : { mode, presets: [...chosen, ...others], ...rules });
  };
  const area = (name: string, label: string, list?: (string | number)[]) => <label>{label}<textarea name={name} rows={3} spellcheck={false} defaultValue={lines(list)} /></label>;
  return (
    <form ref={form} class="create" onSubmit={(e) => (e.preventDefault(), void submit())}>
      <label>May reach<select value={mode} onChange={(e) => setMode(e.currentTarget.value as NetworkMode)}><option value="off">nothing (off)</option><option value="restricted">what is listed (restricted)</option><option value="open">the internet (open)</option></select></label>
      {mode === "restricted" && <fieldset><legend>Presets</legend>{presets.map((p) => <label key={p} class="check"><input type="checkbox" name="preset" value={p} defaultChecked={now.presets?.includes(p)} />{p}</label>)}</fieldset>}
      {mode !== "off" && area("domains", "Host names, such as *.example.org", now.allowDomains)}
      {mode !== "off" && area("cidrs", "Address ranges", now.allowCidrs)}
      {mode === "open" && area("deny", "Closed address ranges", now.denyCidrs)}
      {mode !== "off" && area("ports", "Only these ports", now.allowPorts)}
      <div class="whole"><Button kind="main" work={submit}>Set the policy</Button></div>
    </form>
  );
}

/** What is known of one host: all lines of the log about it that were decided alike. */
interface Reached { key: string; host: string; allowed: boolean; ports: Set<number>; protocols: Set<string>; why?: string; times: number; last: Date; out: number; in: number; name?: string }

/** The log by host, the latest first. */
function byHost(log: NetworkDecision[]): Reached[] {
  const all = new Map<string, Reached>();
  for (const d of log) { // the newest first
    const host = d.name ?? d.address ?? "?", key = `${d.allowed} ${host}`;
    const r = all.get(key) ?? { key, host, allowed: d.allowed, ports: new Set(), protocols: new Set(), why: d.rule ?? d.reason, times: 0, last: d.time, out: 0, in: 0, name: d.name };
    if (d.port) r.ports.add(d.port);
    r.protocols.add(d.protocol);
    if (!d.closed) r.times += d.repeated ?? 1;
    r.out += d.bytesOut;
    r.in += d.bytesIn;
    all.set(key, r);
  }
  return [...all.values()];
}

export function NetworkTab({ sandbox, write, again }: { sandbox: Sandbox; write: boolean; again: () => Promise<void> }) {
  const [log, setLog] = useState<NetworkDecision[]>([]);
  const [editing, setEditing] = useState(false);
  const [trouble, attempt] = useTrouble();
  useStream(async (signal) => {
    setLog([]); // the stream begins with what is remembered
    for await (const d of sandbox.followNetworkLog({ signal })) setLog((old) => [d, ...old].slice(0, 500));
  }, sandbox.id);
  const { network } = sandbox.info;
  const policy = whole(network);
  const set = (next: NetworkPolicy) => attempt(async () => {
    await sandbox.setNetwork(next);
    await again();
    setEditing(false);
  });
  const allow = (name: string) => set({ ...policy, mode: policy.mode === "off" ? "restricted" : policy.mode, allowDomains: [...(policy.allowDomains ?? []), name] });
  const listed = [...(policy.presets ?? []).map((p) => `preset ${p}`), ...(policy.allowDomains ?? []), ...(policy.allowCidrs ?? [])];
  return (
    <>
      <div class="bar left"><p>The policy is <b>{networkText(network)}</b>{listed.length > 0 && `, with ${listed.join(", ")}`}.</p>
        {write && <button type="button" aria-expanded={editing} onClick={() => setEditing(!editing)}>{editing ? "Close" : "Change"}</button>}</div>
      <Trouble text={trouble} />
      {editing && <Policy key={JSON.stringify(network)} network={network} save={set} />}
      {log.length === 0 && <Empty><p role="status">No connections yet. What it tries to reach appears here.</p></Empty>}
      {log.length > 0 && <table><thead><tr><th>Host</th><th>Decision</th><th>Why</th><th>Protocols</th><th>Ports</th><th class="number">Times</th><th class="number">Sent</th><th class="number">Received</th><th>Last</th><th><span class="hidden">Act</span></th></tr></thead>
        <tbody>{byHost(log).map((r) => (
          <tr key={r.key}><td><b>{r.host}</b></td><td class={r.allowed ? "yes" : "no"}>{r.allowed ? "allowed" : "refused"}</td><td>{r.why}</td><td>{[...r.protocols].join(", ")}</td><td>{[...r.ports].join(", ")}</td>
            <td class="number">{r.times}</td><td class="number">{bytes(r.out)}</td><td class="number">{bytes(r.in)}</td><td><Moment at={r.last} /></td>
            <td>{write && !r.allowed && r.name && !policy.allowDomains?.includes(r.name) && <Button work={() => allow(r.name!)}>Allow this host</Button>}</td></tr>
        ))}</tbody></table>}
    </>
  );
}

/** The ports on which something in the sandbox listens, each with a button that opens it. */
export function Listening({ sandbox, processes }: { sandbox: Sandbox; processes: ProcessInfo[] }) {
  const [trouble, attempt] = useTrouble();
  const [link, setLink] = useState<Link>();
  const ports = new Map(processes.flatMap((p) => (p.ports ?? []).map((port): [number, ProcessInfo] => [port, p])));
  const open = (port: number) => attempt(async () => {
    const made = await sandbox.createLink(port);
    setLink(made);
    window.open(made.url, "_blank", "noopener,noreferrer");
  });
  if (ports.size === 0 && !trouble) return null;
  return (
    <div class="ports">
      <ul aria-label="Listening ports">{[...ports].sort(([a], [b]) => a - b).map(([port, p]) => <li key={port}><b>{port}</b> <small>{nameOf(p)}</small> <Button label={`Open port ${port}`} work={() => open(port)}>Open</Button></li>)}</ul>
      {link && <small>Opened <a href={link.url} target="_blank" rel="noopener noreferrer">{new URL(link.url).host}</a></small>}
      <Trouble text={trouble} />
    </div>
  );
}

/** A program by its name, without its folder. */
export const nameOf = (p: ProcessInfo) => line(p).replace(/^exec /, "").split(" ")[0]!.split("/").at(-1)!;

export function Ports({ sandbox, write }: { sandbox: Sandbox; write: boolean }) {
  const { value, trouble, again } = useRead(() => sandbox.links(), sandbox.id);
  const { value: processes } = useRead(() => sandbox.processes({ all: true }), sandbox.id, 3);
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
      {write && <div class="bar"><label>Port <input ref={port} type="number" min={1} max={65535} value="8000" /></label><Button kind="main" work={make}>Create link</Button></div>}
      {write && processes && <Listening sandbox={sandbox} processes={processes} />}
      {opened && <p class="note">Open <a href={opened} target="_blank" rel="noopener noreferrer">{new URL(opened).host}</a></p>}
      {value?.length === 0 && <Empty><p>No links yet.</p><p>Create one above, or with <Command>{`bothy link create ${sandbox.id} 8000`}</Command></p></Empty>}
      {value && value.length > 0 && (
        <table><thead><tr><th>Port</th><th>For</th><th>Created by</th><th>Expires in</th><th><span class="hidden">Act</span></th></tr></thead>
          <tbody>{value.map((l) => <tr key={l.id}><td>{l.port}</td><td>{l.kind}</td><td>{l.tokenName || l.tokenId}</td><td><Time at={l.expiresAt} left /></td>
            <td>{write && <Button kind="danger" work={() => attempt(async () => (await sandbox.deleteLink(l.id), await again()))}>Revoke</Button>}</td></tr>)}</tbody></table>
      )}
    </>
  );
}

