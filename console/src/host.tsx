/** The machine that the server runs on, for its operator. */
import type { Host } from "bothy";
import { bothy } from "./server";
import { bytes, Command, Empty, Trouble, useRead } from "./ui";

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
      <p><small>{columns.reduce((n, c) => n + c.count, 0)} requests since the server was started, by how long they took at most.</small></p>
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

export function HostPage() {
  const { value: h, trouble } = useRead(() => bothy.host(), "", 5);
  if (!h) return <main><h1>Host</h1><Trouble text={trouble} />{!trouble && <p class="waits" role="status">Looking at the host…</p>}</main>;
  const live = Object.entries(h.sandboxes).map(([state, n]) => `${n} ${state}`).join(", ");
  return (
    <main>
      <div class="bar"><h1>Host <small>{h.version}</small></h1></div>
      <Trouble text={trouble} />
      <div class="cards">
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
