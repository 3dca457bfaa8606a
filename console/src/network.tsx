/** What a sandbox tries to reach, and the links that reach it. */
import type { Link, NetworkDecision, NetworkPolicy, ProcessInfo, Sandbox } from "bothy";
import { useRef, useState } from "preact/hooks";
import { networkText } from "./list";
import { line } from "./processes";
import { useStream } from "./stream";
import { Button, Command, Empty, Moment, Time, Trouble, useRead, useTrouble } from "./ui";

export function NetworkTab({ sandbox, write, again }: { sandbox: Sandbox; write: boolean; again: () => Promise<void> }) {
  const [lines, setLines] = useState<NetworkDecision[]>([]);
  const [trouble, attempt] = useTrouble();
  useStream(async (signal) => {
    setLines([]); // the stream begins with what is remembered
    for await (const d of sandbox.followNetworkLog({ signal })) setLines((old) => [d, ...old].slice(0, 500));
  }, sandbox.id);
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
      {lines.length === 0 && <Empty><p role="status">No connections yet. What it tries to reach appears here.</p></Empty>}
      {lines.length > 0 && <table><thead><tr><th>Time</th><th>Host</th><th>Port</th><th>Protocol</th><th>Decision</th><th>Why</th><th><span class="hidden">Act</span></th></tr></thead>
        <tbody>{lines.map((d, i) => (
          <tr key={i}><td><Moment at={d.time} /></td><td>{d.name ?? d.address}</td><td>{d.port}</td><td>{d.protocol}</td>
            <td class={d.allowed ? "yes" : "no"}>{d.allowed ? "allowed" : "refused"}</td><td>{d.rule ?? d.reason}</td>
            <td>{write && !d.allowed && d.name && !policy.allowDomains?.includes(d.name) && <Button work={() => allow(d.name!)}>Allow this host</Button>}</td></tr>
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

