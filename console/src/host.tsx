/** The machine that the server runs on, for its operator. */
import { bothy } from "./server";
import { bytes, Trouble, useRead, Command } from "./ui";

const count = (n: number, one: string) => `${n} ${one}${n === 1 ? "" : one.endsWith("x") ? "es" : "s"}`;

function Meter({ name, used, of }: { name: string; used: number; of: number }) {
  const text = `${bytes(used)} of ${bytes(of)} in use`;
  return <><dt>{name}</dt><dd><meter aria-label={name} min={0} max={of} high={of * 0.9} value={used}>{text}</meter> {text}</dd></>;
}

function Histogram({ columns }: { columns: { upToSeconds: number | null; count: number }[] }) {
  const last = columns.findLastIndex((c) => c.count > 0);
  const shown = columns.slice(Math.max(0, columns.findIndex((c) => c.count > 0) - 1), last + 2);
  const top = Math.max(...shown.map((c) => c.count), 1);
  if (last < 0) return <p>No sandbox was created since the server was started. Create one with <Command>bothy create</Command></p>;
  const name = (end: number | null) => (end === null ? "longer" : end < 1 ? `${end * 1000} ms` : `${end} s`);
  return (
    <table>
      <thead><tr><th>At most</th><th>Requests</th><th><span class="hidden">Plot</span></th></tr></thead>
      <tbody>{shown.map((c) => <tr key={c.upToSeconds}><td>{name(c.upToSeconds)}</td><td>{c.count}</td><td class="wide"><div class="share" style={{ width: `${(c.count / top) * 100}%` }} /></td></tr>)}</tbody>
    </table>
  );
}

export function HostPage() {
  const { value: h, trouble } = useRead(() => bothy.host(), "", 5);
  if (!h) return <main><h1>Host</h1><Trouble text={trouble} />{!trouble && <p role="status">Looking at the host…</p>}</main>;
  const live = Object.entries(h.sandboxes).map(([state, n]) => `${n} ${state}`).join(", ");
  return (
    <main>
      <h1>Host <small>{h.version}</small></h1>
      <Trouble text={trouble} />
      <h2>Capacity</h2>
      <dl>
        <dt>Processors</dt><dd>{h.cpus}</dd>
        <Meter name="Memory" used={h.memoryBytes - h.freeMemoryBytes} of={h.memoryBytes} />
        <Meter name="Disk" used={h.diskBytes - h.freeDiskBytes} of={h.diskBytes} />
        <dt>Sandboxes</dt><dd>{live || "none"}, of {h.maxSandboxes ?? "any number"}</dd>
        <dt>Held ready</dt><dd>{count(h.pool.ready, "sandbox")} ({bytes(h.pool.memoryBytes)}), {count(h.pool.spares, "spare")}, {count(h.pool.golden, "golden snapshot")} ({bytes(h.pool.goldenBytes)})</dd>
      </dl>
      <h2>Engines</h2>
      <table>
        <thead><tr><th>Name</th><th>State</th><th>Acceleration</th><th>Kernel</th><th>Memory snapshots</th></tr></thead>
        <tbody>{h.engines.map((e) => <tr key={e.name}><td>{e.name}</td><td>{e.open ? "ready" : "opened when first needed"}</td><td>{e.open && (e.acceleration ?? "not needed")}</td><td>{e.kernel}</td><td>{e.open && (e.snapshots ? "yes" : "no")}</td></tr>)}</tbody>
      </table>
      <h2>How long creating took</h2>
      <Histogram columns={h.creations} />
      <h2>Findings</h2>
      <table>
        <thead><tr><th>What</th><th>Outcome</th><th>Found</th><th>What to do</th></tr></thead>
        <tbody>{h.findings.map((f, i) => <tr key={i}><td>{f.name}</td><td class={f.status === "ok" ? "yes" : "no"}>{f.status}</td><td>{f.detail}</td><td>{f.fix}</td></tr>)}</tbody>
      </table>
      <p>For more, which starts sandboxes, run <Command>bothy doctor</Command></p>
    </main>
  );
}
