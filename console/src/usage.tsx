/** What was used, what it costs, and what may be spent. */
import type { UsageItem } from "bothy";
import { bothy } from "./server";
import { Button, bytes, Empty, save, span, Trouble, useQuery, useRead } from "./ui";

const day = 86_400_000;
const month = (back: number) => {
  const now = new Date();
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1));
};

/** The times that can be looked at, by what they are called. */
const times: Record<string, () => { from: Date; to?: Date }> = {
  "this month": () => ({ from: month(0) }), "last month": () => ({ from: month(1), to: month(0) }),
  "today": () => ({ from: new Date(Math.floor(Date.now() / day) * day) }), "7 days": () => ({ from: new Date(Math.floor(Date.now() / day - 6) * day) }),
  "30 days": () => ({ from: new Date(Math.floor(Date.now() / day - 29) * day) }), "90 days": () => ({ from: new Date(Math.floor(Date.now() / day - 89) * day) }),
};

const cell = (v: unknown) => {
  const text = String(v ?? "");
  // A spreadsheet takes what begins so for a formula.
  return `"${(/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text).replaceAll('"', '""')}"`;
};

/** Every day from the first that was asked for to the last, so that one without use is seen to have none. */
function days(items: UsageItem[], from: Date, to: Date): [string, number][] {
  const cost = new Map(items.map((i) => [i.day, i.cost]));
  const list: [string, number][] = [];
  for (let at = Math.floor(+from / day) * day; at < +to; at += day) {
    const name = new Date(at).toISOString().slice(0, 10);
    list.push([name, cost.get(name) ?? 0]);
  }
  return list;
}

function Days({ list, currency }: { list: [string, number][]; currency: string }) {
  const top = Math.max(...list.map(([, cost]) => cost), 1e-9);
  return (
    <section class="card" aria-label="Daily cost">
      <ul class="columns">{list.map(([name, cost]) => <li key={name} style={{ height: `${(cost / top) * 100}%` }} title={`${name}: ${cost.toFixed(4)} ${currency}`}><span class="hidden">{name}: {cost.toFixed(4)}</span></li>)}</ul>
      <div class="axis ends" aria-hidden="true"><span>{list[0]?.[0]}</span><span>at most {top < 1e-6 ? 0 : top.toFixed(4)} {currency} a day</span><span>{list.at(-1)?.[0]}</span></div>
    </section>
  );
}

export function Usage() {
  const [asked, setBy] = useQuery("by");
  const chosen = asked || "day";
  const [label, setLabel] = useQuery("label");
  const [when, setWhen] = useQuery("when");
  const time = times[when] ? when : "this month";
  const by = chosen === "label" ? (label && `label:${label}`) : chosen;
  const { value, trouble } = useRead(() => bothy.usage({ groupBy: by || "day", ...times[time]!() }), `${by} ${time}`, 60);
  const limits = useRead(() => bothy.limits(), "", 60);
  const l = limits.value;
  const nameOf = (i: UsageItem) => (by.startsWith("label:") ? i.labels?.[label] || "none" : i.day ?? i.project ?? i.template ?? i.sandbox ?? "");
  const top = Math.max(...(value?.items.map((i) => i.cost) ?? []), 1e-9);
  const csv = async () => save("usage.csv", [[cell(by || "day"), "cost", "currency", "vcpu_seconds", "cpu_seconds", "memory_mb_seconds", "egress_bytes", "ingress_bytes", "snapshot_mb_seconds", "template_mb_seconds"].join(","),
    ...value!.items.map((i) => [nameOf(i), i.cost, value!.currency, i.vcpuSeconds, i.cpuSeconds, i.memoryMbSeconds, i.egressBytes, i.ingressBytes, i.snapshotMbSeconds, i.templateMbSeconds].map(cell).join(","))].join("\n") + "\n");
  const sorted = value && (chosen === "day" ? value.items : [...value.items].sort((a, b) => b.cost - a.cost));
  return (
    <main>
      <div class="bar"><h1>Usage</h1>
        <label>Time <select value={time} onChange={(e) => setWhen(e.currentTarget.value)}>{Object.keys(times).map((t) => <option key={t}>{t}</option>)}</select></label>
        <label>By <select value={chosen} onChange={(e) => setBy(e.currentTarget.value)}><option>day</option><option>project</option><option>template</option><option>sandbox</option><option>label</option></select></label>
        {chosen === "label" && <label>Label <input placeholder="team" value={label} onChange={(e) => setLabel(e.currentTarget.value)} /></label>}
        <Button disabled={!value} work={csv}>CSV</Button></div>
      <Trouble text={trouble || limits.trouble} />
      <div class="cards">
        <section class="card"><h2>Cost</h2>
          {value ? <dl><dt>Total</dt><dd><b>{value.total.cost.toFixed(4)} {value.currency}</b></dd><dt>CPU</dt><dd>{span(value.total.cpuSeconds)} used of {span(value.total.vcpuSeconds)} allocated</dd><dt>Sent</dt><dd>{bytes(value.total.egressBytes)}</dd><dt>Received</dt><dd>{bytes(value.total.ingressBytes)}</dd></dl> : !trouble && <p class="waits" role="status">Adding it up…</p>}
        </section>
        {l && (
          <section class="card"><h2>Plan {l.plan}</h2>
            <dl><dt>Sandboxes</dt><dd>{l.sandboxes.used} of {l.sandboxes.limit ?? "any number"}</dd><dt>Snapshots</dt><dd>{l.snapshots.usedMb} MiB of {l.snapshots.limitMb ? `${l.snapshots.limitMb} MiB` : "any size"}</dd>
              <dt>Templates</dt><dd>{l.templates.usedMb} MiB of {l.templates.limitMb ? `${l.templates.limitMb} MiB` : "any size"}</dd>
              <dt>Budget</dt><dd>{l.budget ? <><meter min={0} max={l.budget.limit} high={l.budget.limit * 0.8} value={l.budget.used} aria-label="Budget" /> {l.budget.used.toFixed(4)} of {l.budget.limit} {l.budget.currency} this month</> : "no limit"}</dd></dl>
          </section>
        )}
      </div>
      {chosen === "day" && value && <div style={{ marginTop: "1rem" }}><Days list={days(value.items, value.from, value.to)} currency={value.currency} /></div>}
      {value?.items.length === 0 && <Empty><p>No usage in this period.</p></Empty>}
      {sorted && sorted.length > 0 && (
        <table style={{ marginTop: "1rem" }}><thead><tr><th>{by || "day"}</th><th class="number">Cost</th><th class="number">CPU time</th><th class="number">Memory, MiB hours</th><th class="number">Sent</th><th><span class="hidden">Plot</span></th></tr></thead>
          <tbody>{sorted.map((i) => <tr key={nameOf(i)}><td>{nameOf(i)}</td><td class="number">{i.cost.toFixed(4)}</td><td class="number">{span(i.cpuSeconds)}</td><td class="number">{Math.round(i.memoryMbSeconds / 3600)}</td><td class="number">{bytes(i.egressBytes)}</td><td class="wide"><div class="share" style={{ width: `${(i.cost / top) * 100}%` }} /></td></tr>)}</tbody></table>
      )}
    </main>
  );
}
