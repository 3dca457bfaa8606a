/** The machine that the server runs on and the others of its cluster, for the operator. */
import { type Host, BothyError } from "bothy";
import { useState } from "preact/hooks";
import { bothy } from "./server";
import { Button, bytes, Command, Empty, Moment, Trouble, useRead, useTrouble } from "./ui";

const count = (n: number, one: string) => `${n} ${one}${n === 1 ? "" : one.endsWith("x") ? "es" : "s"}`;

function Meter({ name, used, of }: { name: string; used: number; of: number }) {
  const text = `${bytes(used)} of ${bytes(of)} in use`;
  return <><dt>{name}</dt><dd><meter aria-label={name} min={0} max={of} high={of * 0.9} value={used}>{text}</meter> {text}</dd></>;
}

function Histogram({ columns }: { columns: { upToSeconds: number | null; count: number }[] }) {
  const last = columns.findLastIndex((c) => c.count > 0);
  if (last < 0) return <Empty><p>No sandbox has been created since the server was started.</p><p>Create one with <Command>bothy create</Command></p></Empty>;
  const shown = columns.slice(Math.max(0, columns.findIndex((c) => c.count > 0) - 1), last + 2);
  const top = Math.max(...shown.map((c) => c.count), 1);
  const name = (end: number | null) => (end === null ? "longer" : end < 1 ? `${Math.round(end * 1000)} ms` : `${end} s`);
  return (
    <>
      <ul class="columns">{shown.map((c) => <li key={c.upToSeconds} style={{ height: `${(c.count / top) * 100}%` }} title={`${c.count} within ${name(c.upToSeconds)}`}><span class="hidden">{c.count} within {name(c.upToSeconds)}</span></li>)}</ul>
      <div class="axis" aria-hidden="true">{shown.map((c) => <span key={c.upToSeconds}>{name(c.upToSeconds)}</span>)}</div>
      <p><small>{count(columns.reduce((n, c) => n + c.count, 0), "request")} since the server was started, by how long they took at most.</small></p>
    </>
  );
}

function Pool({ pool }: { pool: Host["pool"] }) {
  return (
    <>
      <p>{count(pool.ready, "sandbox")} ready, which use {bytes(pool.memoryBytes)}; {count(pool.spares, "half-started one")}; {count(pool.golden, "golden snapshot")} of {bytes(pool.goldenBytes)}.</p>
      {pool.contents.length > 0 && (
        <table><thead><tr><th>Template</th><th>Engine</th><th class="number">CPUs</th><th class="number">Memory</th><th class="number">Disk</th><th class="number">Ready</th><th class="number">Golden</th></tr></thead>
          <tbody>{pool.contents.map((i, n) => <tr key={n}><td>{i.template}</td><td>{i.engine}</td><td class="number">{i.cpus}</td><td class="number">{i.memoryMb} MiB</td><td class="number">{i.diskMb} MiB</td><td class="number">{i.ready}</td><td class="number">{i.goldenBytes ? bytes(i.goldenBytes) : "–"}</td></tr>)}</tbody></table>
      )}
    </>
  );
}

/** What the page shows of a host of the cluster, by the API's names. */
interface ClusterHost {
  name: string; address: string; state: "up" | "cordoned" | "draining" | "dead"; self: boolean; version?: string; labels?: Record<string, string>;
  sandboxes: number; live: number; ready: number; cpus: number; load: number; memory_bytes: number; free_memory_bytes: number;
  move_problem?: string; start_problem?: string; processor_problem?: string;
}

interface Invitation { command: string; expires_at: string }

/** The hosts of the cluster; null where the server is alone, which needs no second question. */
async function readHosts(before: ClusterHost[] | null | undefined): Promise<ClusterHost[] | null> {
  if (before === null) return null;
  try {
    return ((await bothy.request("GET", "/v1/hosts")) as { items: ClusterHost[] }).items;
  } catch (error) {
    if (error instanceof BothyError && error.code === "conflict") return null;
    throw error;
  }
}

const offered: Record<ClusterHost["state"], [string, string][]> = {
  up: [["cordoned", "Cordon"], ["draining", "Drain"]], cordoned: [["up", "Uncordon"], ["draining", "Drain"]], draining: [["up", "Uncordon"]], dead: [],
};

function Cluster() {
  const { value, trouble, again } = useRead((): Promise<ClusterHost[] | null> => readHosts(value), "", 5);
  const [failed, attempt] = useTrouble();
  const [invited, setInvited] = useState<Invitation>();
  if (!value) return <Trouble text={trouble} />;
  const path = (h: ClusterHost) => `/v1/hosts/${encodeURIComponent(h.name)}`;
  const invite = () => attempt(async () => setInvited((await bothy.request("POST", "/v1/hosts")) as Invitation));
  const set = (h: ClusterHost, state: string) => attempt(async () => (await bothy.request("PATCH", path(h), { json: { state } }), await again()));
  const remove = (h: ClusterHost) => attempt(async () => confirm(`Remove ${h.name} from the cluster?`) && (await bothy.request("DELETE", path(h)), await again()));
  return (
    <section class="card full" aria-label="Hosts of the cluster">
      <div class="bar"><h2>Hosts of the cluster</h2><Button work={invite}>Invite a host</Button></div>
      <Trouble text={failed || trouble} />
      {invited && <p role="status" class="note">On the new host, before <Moment at={invited.expires_at} />: <Command>{invited.command}</Command> <button type="button" onClick={() => setInvited(undefined)}>Hide</button></p>}
      <table>
        <thead><tr><th>Name</th><th>State</th><th>Address</th><th class="number">Sandboxes</th><th class="number">Running</th><th class="number">Ready</th><th class="number">Load</th><th>Free memory</th><th>Version</th><th><span class="hidden">Act</span></th></tr></thead>
        <tbody>{value.map((h) => (
          <tr key={h.name}><td><b>{h.name}</b>{h.self && <small> answers here</small>} {Object.entries(h.labels ?? {}).map(([k, v]) => <span key={k} class="label">{k}={v}</span>)}</td>
            <td class={h.state === "up" ? "yes" : h.state === "dead" ? "no" : "warn"}>{h.state} <small>{h.start_problem ?? h.move_problem ?? h.processor_problem}</small></td><td>{h.address}</td>
            <td class="number">{h.sandboxes}</td><td class="number">{h.live}</td><td class="number">{h.ready}</td><td class="number">{Math.round(h.load * 100)} % of {h.cpus}</td><td>{bytes(h.free_memory_bytes)} of {bytes(h.memory_bytes)}</td><td>{h.version}</td>
            <td>{offered[h.state].map(([state, name]) => <Button key={state} kind="quiet" label={`${name} ${h.name}`} work={() => set(h, state)}>{name}</Button>)}{h.state === "dead" && <Button kind="quiet danger" label={`Remove ${h.name}`} work={() => remove(h)}>Remove</Button>}</td></tr>
        ))}</tbody>
      </table>
    </section>
  );
}

export function HostPage() {
  const { value: h, trouble } = useRead(() => bothy.host(), "", 5);
  if (!h) return <main><h1>Host</h1><Trouble text={trouble} />{!trouble && <p class="waits" role="status">Looking at the host…</p>}</main>;
  const live = Object.entries(h.sandboxes).map(([state, n]) => `${n} ${state}`).join(", ");
  return (
    <main>
      <div class="bar"><h1>Host <small>{h.version}</small></h1></div>
      <Trouble text={trouble} />
      <div class="cards">
        <Cluster />
        <section class="card"><h2>Capacity</h2>
          <dl>
            <dt>Processors</dt><dd>{h.cpus}</dd>
            <Meter name="Memory" used={h.memoryBytes - h.freeMemoryBytes} of={h.memoryBytes} />
            <Meter name="Disk" used={h.diskBytes - h.freeDiskBytes} of={h.diskBytes} />
            <dt>Sandboxes</dt><dd>{live || "none"}, of {h.maxSandboxes ?? "any number"}</dd>
          </dl>
        </section>
        <section class="card"><h2>Creation times</h2><Histogram columns={h.creations} /></section>
        <section class="card full"><h2>Warm pool</h2><Pool pool={h.pool} /></section>
        <section class="card full"><h2>Engines</h2>
          <table>
            <thead><tr><th>Name</th><th>State</th><th>Acceleration</th><th>Kernel</th><th>Memory snapshots</th></tr></thead>
            <tbody>{h.engines.map((e) => <tr key={e.name}><td>{e.name}</td><td>{e.open ? <span class="state running">ready</span> : <span class="state">opened when first needed</span>}</td><td>{e.open && (e.acceleration ?? "not needed")}</td><td>{e.kernel}</td><td>{e.open && (e.snapshots ? "yes" : "no")}</td></tr>)}</tbody>
          </table>
        </section>
        <section class="card full"><h2>Findings</h2>
          <table>
            <thead><tr><th>What</th><th>Outcome</th><th>Found</th><th>What to do</th></tr></thead>
            <tbody>{h.findings.map((f, i) => <tr key={i}><td>{f.name}</td><td class={f.status === "ok" ? "yes" : f.status === "warn" ? "warn" : "no"}>{f.status}</td><td>{f.detail}</td><td>{f.fix}</td></tr>)}</tbody>
          </table>
          <p>For further checks, which start sandboxes, run <Command>bothy doctor</Command></p>
        </section>
      </div>
    </main>
  );
}
