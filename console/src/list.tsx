/** The sandboxes, kept true by the stream of events; only the rows in sight are drawn. */
import type { CreateParams, Network, NetworkMode, OnHostLoss, Sandbox, SandboxInfo, SandboxMetrics, Secret, Size } from "bothy";
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { bothy, isLive, type Login, may, textOf } from "./server";
import { languages, snippet } from "./snippets";
import { useStream } from "./stream";
import { A, Button, bytes, Command, Empty, go, Time, Trouble, useQuery, useRead, useTrouble } from "./ui";

const rowHeight = 36;
const drawn = 60;

/** More changed sandboxes than these are read as a list. */
const few = 20;

function useSandboxes() {
  const [all, setAll] = useState(new Map<string, SandboxInfo>());
  const [ready, setReady] = useState(false);
  const [trouble, attempt] = useTrouble();
  const waiting = useRef(new Set<string>());
  const readAll = async () => {
    const list = await bothy.sandboxes.list({ live: true, limit: 1000 }).all();
    setAll(new Map(list.map((s) => [s.id, s.info])));
    setReady(true);
  };
  const readChanged = async () => {
    const ids = [...waiting.current];
    waiting.current.clear();
    if (ids.length > few) return readAll();
    const changed = await Promise.all(ids.map(async (id) => (await bothy.sandboxes.get(id)).info));
    setAll((old) => {
      const next = new Map(old);
      for (const s of changed) isLive(s) ? next.set(s.id, s) : next.delete(s.id);
      return next;
    });
  };
  const connected = useStream(async (signal, stands) => {
    const since = await bothy.lastEvent({ signal });
    await readAll();
    stands();
    for await (const e of bothy.events({ since, rejoin: false, signal })) {
      if (e.sandboxId && waiting.current.add(e.sandboxId).size === 1) setTimeout(() => void attempt(readChanged), 100);
    }
  }, "");
  return { all, ready, trouble, connected, attempt };
}

const matches = (s: SandboxInfo, words: string[]) => {
  const text = [s.id, s.name, s.state, s.template, s.engine, s.ended?.reason, s.health?.status, ...Object.entries(s.metadata ?? {}).map(([k, v]) => `${k}=${v}`)].join(" ").toLowerCase();
  return words.every((w) => text.includes(w));
};

export const networkText = (n: Network) => (typeof n === "string" ? n : (n.mode ?? "restricted"));

type Use = Map<string, SandboxMetrics>;
type Order = (a: SandboxInfo, b: SandboxInfo, use: Use) => number;
const text = (of: (s: SandboxInfo) => string | undefined): Order => (a, b) => (of(a) ?? "").localeCompare(of(b) ?? "");
const number = (of: (s: SandboxInfo, use: Use) => number): Order => (a, b, use) => of(b, use) - of(a, use);
/** What a click on the head of a column sorts by; a second one turns it round. */
const orders: Record<string, Order> = {
  Sandbox: text((s) => s.name ?? s.id), State: text((s) => s.state), Template: text((s) => s.template), Engine: text((s) => s.engine),
  Age: number((s) => +s.createdAt), "Time left": number((s) => -(s.expiresAt ? +s.expiresAt : Infinity)),
  CPU: number((s, use) => use.get(s.id)?.cpuUsed ?? -1), Memory: number((s, use) => use.get(s.id)?.memoryBytes ?? -1), Network: text((s) => networkText(s.network)),
  Sent: number((s, use) => use.get(s.id)?.egressBytes ?? -1), Ended: number((s) => +(s.ended?.at ?? 0)),
};

const none: Use = new Map();
const useUse = (on: boolean) => useRead(async () => (on ? new Map((await bothy.metrics()).map((m) => [m.sandboxId, m])) : none), on, 10).value ?? none;
const useEnded = (on: boolean) => useRead(async () => (on ? (await bothy.sandboxes.list({ state: ["stopped", "failed"], limit: 500 })).items.map((s) => s.info) : []), on, 10);

export function SandboxList({ login }: { login: Login }) {
  const { all, ready, trouble, connected, attempt } = useSandboxes();
  const [filter, setFilter] = useQuery("q");
  const [state, setState] = useQuery("state");
  const [sort, setSort] = useQuery("sort");
  const [chosen, setChosen] = useState(new Set<string>());
  const [making, setMaking] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const ended = state === "ended";
  const past = useEnded(ended);
  const use = useUse(!ended);
  useEffect(() => {
    const pressed = (e: KeyboardEvent) => {
      if (e.key !== "/" || /^(INPUT|TEXTAREA|SELECT)$/.test((e.target as HTMLElement).tagName)) return;
      e.preventDefault();
      search.current?.focus();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const rows = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const from = ended ? (past.value ?? []) : [...all.values()].filter((s) => !state || s.state === state);
    const [column, turned] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
    const order = orders[column] ?? orders[ended ? "Ended" : "Age"]!;
    return from.filter((s) => matches(s, words)).sort((a, b) => turned * order(a, b, use) || +b.createdAt - +a.createdAt);
  }, [all, filter, state, sort, use, past.value]);
  const counts = useMemo(() => {
    const of: Record<string, number> = {};
    for (const s of all.values()) of[s.state] = (of[s.state] ?? 0) + 1;
    return Object.entries(of).sort();
  }, [all]);
  const write = may(login, "sandboxes:write");
  const picked = ended ? [] : rows.filter((s) => chosen.has(s.id));
  const end = () => attempt(async () => {
    if (!confirm(`Terminate ${picked.length === 1 ? picked[0]!.name ?? picked[0]!.id : `${picked.length} sandboxes`}?`)) return;
    const left = [...picked];
    const some = async () => {
      for (let s = left.pop(); s; s = left.pop()) {
        await (await bothy.sandboxes.get(s.id)).terminate();
        setChosen((old) => new Set([...old].filter((id) => id !== s!.id)));
      }
    };
    await Promise.all(Array.from({ length: 8 }, some));
  });
  const press = (key: string, { id, name, state }: SandboxInfo) => {
    const act = (work: (s: Sandbox) => Promise<unknown>) => void attempt(async () => work(await bothy.sandboxes.get(id)));
    const keys: Record<string, () => void> = {
      t: () => go(`sandboxes/${id}/terminal`), f: () => act((s) => s.fork(1)), p: () => act((s) => (state === "paused" ? s.resume() : s.pause())),
      x: () => confirm(`Terminate ${name ?? id}?`) && act((s) => s.terminate()),
    };
    keys[key]?.();
    return key in keys;
  };
  const chip = (value: string, name: string) => <button key={name} type="button" aria-pressed={state === value} onClick={() => setState(state === value ? "" : value)}>{name}</button>;
  const waits = ended ? !past.value && !past.trouble : !ready && !trouble;
  return (
    <main>
      <div class="bar left">
        <h1>Sandboxes</h1>
        <div class="chips" role="group" aria-label="State">{chip("", `all ${all.size}`)}{counts.map(([name, n]) => chip(name, `${name} ${n}`))}{chip("ended", "ended")}</div>
        <input ref={search} type="search" aria-label="Filter" placeholder="id, name, template, label=value" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        {write && picked.length > 0 && <Button kind="danger" work={end}>Terminate {picked.length}</Button>}
        {write && <button type="button" class={making ? "" : "main"} onClick={() => setMaking(!making)} aria-expanded={making}>{making ? "Close" : "New sandbox"}</button>}
      </div>
      {!connected && <p class="lost" role="status">The connection to the server is lost. Trying again…</p>}
      <Trouble text={trouble || past.trouble} />
      {making && <Create />}
      {waits && <p class="waits" role="status">Reading the list…</p>}
      {ready && !ended && all.size === 0 && <Empty><p>No sandbox is running.</p><p>Make one above, or with <Command>bothy create --template python-3.12</Command></p></Empty>}
      {!waits && rows.length === 0 && (ended || all.size > 0) && <Empty><p>{ended && !filter ? "There are no ended sandboxes." : "No sandbox matches."}</p></Empty>}
      {rows.length > 0 && <Rows rows={rows} use={use} ended={ended} sort={sort} setSort={setSort} chosen={chosen} choose={write && !ended ? setChosen : undefined} press={write && !ended ? press : undefined} />}
    </main>
  );
}

interface RowProps { of: SandboxInfo; use?: SandboxMetrics; ended: boolean; chosen: boolean; toggle?: (id: string) => void }

/** One row, which is drawn again only where something of it has changed, and not while others are scrolled into sight. */
class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { of, use, ended, chosen } = this.props;
    return of !== next.of || use !== next.use || ended !== next.ended || chosen !== next.chosen;
  }
  override render({ of: s, use: m, ended, chosen, toggle }: RowProps) {
    return (
      <tr class={chosen ? "row chosen" : "row"} data-id={s.id}>
        <td>{toggle && <input type="checkbox" aria-label={`Choose ${s.id}`} checked={chosen} onChange={() => toggle(s.id)} />}</td>
        <td><A to={`sandboxes/${s.id}`}>{s.name ? <>{s.name} <small>{s.id}</small></> : s.id}</A></td>
        <td><span class={`state ${s.state}`}>{s.ended ? s.ended.reason.replaceAll("_", " ") : s.state}</span>{s.health && <small class="warn" title={s.health.detail}> {s.health.status.replaceAll("_", " ")}</small>}</td><td title={s.template}>{s.template}</td><td>{s.engine}</td>
        <td><Time at={s.createdAt} /></td><td>{ended ? <Time at={s.ended?.at} /> : <Time at={s.expiresAt} left />}</td>
        <td class="number">{typeof m?.cpuUsed === "number" ? `${m.cpuUsed.toFixed(2)} ` : ""}<small>/ {s.cpu}</small></td>
        <td class="number">{m ? `${Math.round(m.memoryBytes / 2 ** 20)} ` : ""}<small>/ {s.memoryMb} MiB</small></td>
        <td>{networkText(s.network)}</td><td class="number">{m ? bytes(m.egressBytes) : ""}</td>
        <td title={Object.entries(s.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join("\n")}>{Object.entries(s.metadata ?? {}).map(([k, v]) => <span key={k} class="label">{k}={v}</span>)}</td>
      </tr>
    );
  }
}

interface RowsProps { rows: SandboxInfo[]; use: Use; ended: boolean; sort: string; setSort: (s: string) => void; chosen: Set<string>; choose?: (s: Set<string>) => void; press?: (key: string, of: SandboxInfo) => boolean }

function Rows({ rows, use, ended, sort, setSort, chosen, choose, press }: RowsProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [step, setStep] = useState(0); // in tens, so that not each movement draws anew
  const first = Math.max(0, Math.min(step * 10 - 15, rows.length - drawn));
  const shown = rows.slice(first, first + drawn);
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    choose?.(next);
  };
  const latest = useRef(toggle);
  latest.current = toggle;
  const pressed = (e: KeyboardEvent) => {
    const row = (e.target as HTMLElement).closest<HTMLElement>("a")?.closest<HTMLElement>("tr.row"), of = row && rows.find((s) => s.id === row.dataset.id);
    if (!of || e.ctrlKey || e.metaKey || e.altKey) return;
    const to = e.key === "ArrowDown" ? row.nextElementSibling : e.key === "ArrowUp" ? row.previousElementSibling : undefined;
    if (to) to.querySelector<HTMLElement>("td a")?.focus();
    if (to || press?.(e.key, of)) e.preventDefault();
  };
  const [toggleLatest] = useState(() => (id: string) => latest.current(id));
  const every = rows.length > 0 && rows.every((s) => chosen.has(s.id));
  const head = (name: string, kind?: string) => (
    <th class={kind} aria-sort={sort === name ? "ascending" : sort === `-${name}` ? "descending" : undefined}>
      <button type="button" onClick={() => setSort(sort === name ? `-${name}` : sort === `-${name}` ? "" : name)}>{name}{sort === name ? " ↓" : sort === `-${name}` ? " ↑" : ""}</button>
    </th>
  );
  return (
    <div class="frame" ref={frame} tabIndex={0} role="region" aria-label="Sandboxes" onKeyDown={pressed} onScroll={() => setStep(Math.floor(frame.current!.scrollTop / rowHeight / 10))}>
      <table class="list">
        <thead><tr>
          <th>{choose ? <input type="checkbox" aria-label="Choose all" checked={every} onChange={() => choose(every ? new Set() : new Set(rows.map((s) => s.id)))} /> : <span class="hidden">Choose</span>}</th>
          {head("Sandbox")}{head("State")}{head("Template")}{head("Engine")}{head("Age")}{head(ended ? "Ended" : "Time left")}{head("CPU", "number")}{head("Memory", "number")}{head("Network")}{head("Sent", "number")}<th>Labels</th>
        </tr></thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" style={{ height: first * rowHeight }} />}
          {shown.map((s) => <Row key={s.id} of={s} use={use.get(s.id)} ended={ended} chosen={chosen.has(s.id)} toggle={choose && toggleLatest} />)}
          {rows.length > first + drawn && <tr aria-hidden="true" style={{ height: (rows.length - first - drawn) * rowHeight }} />}
        </tbody>
      </table>
    </div>
  );
}

/** Lines of name=value. What they are is said where one is not. */
export function pairs(text: string, what: string): Record<string, string> {
  return Object.fromEntries(text.split("\n").filter((l) => l.trim()).map((line) => {
    const [name, ...value] = line.split("=");
    if (!name!.trim() || value.length === 0) throw new Error(`The ${what} "${line.trim()}" is not name=value.`);
    return [name!.trim(), value.join("=")];
  }));
}

const some = (text: string | undefined, what: string) => (text ? pairs(text, what) : undefined);

export const words = (text?: string) => text?.split(/[\s,]+/).filter(Boolean);

/** Lines of NAME=VALUE HOST,HOST. A value may have no spaces, as no key has. */
export function secrets(text: string): Secret[] | undefined {
  const list = text.split("\n").filter((l) => l.trim()).map((line, i) => {
    const found = /^\s*(\w+)=(\S+)\s+(\S+)\s*$/.exec(line);
    if (!found) throw new Error(`Line ${i + 1} of the secrets is not NAME=VALUE HOST,HOST.`);
    return { name: found[1]!, value: found[2]!, hosts: found[3]!.split(",") };
  });
  return list.length ? list : undefined;
}

/** What the form asks for. Throws where a line of it cannot be understood. */
function asked(form: HTMLFormElement): CreateParams {
  const f = new FormData(form);
  const text = (name: string) => String(f.get(name) ?? "").trim() || undefined;
  const number = (name: string) => (text(name) ? Number(text(name)) : undefined);
  const policy = (): Network | undefined => {
    const mode = text("network") as NetworkMode | undefined;
    const rules = {
      presets: words(text("presets")), allowDomains: words(text("allow")), allowCidrs: words(text("cidrs")),
      denyCidrs: words(text("deny")), allowPorts: words(text("ports"))?.map(Number),
    };
    return Object.values(rules).some((r) => r) ? { mode: mode ?? "restricted", ...rules } : mode;
  };
  return {
    template: text("snapshot") ? undefined : text("template"), name: text("name"), size: text("size") as Size | undefined, engine: text("engine"),
    cpu: number("cpu"), memoryMb: number("memory"), diskMb: number("disk"), timeoutSeconds: number("timeout"), idleSeconds: number("idle"),
    onTimeout: f.get("pause") ? "pause" : undefined, autoResume: f.get("resume") ? true : undefined, network: policy(), snapshotId: text("snapshot"), requireAcceleration: f.get("accelerated") ? true : undefined,
    checkpointSeconds: number("checkpoint"), onHostLoss: text("loss") as OnHostLoss | undefined, hostLabels: some(text("hosts"), "label of hosts"),
    budget: number("budget"), secrets: secrets(text("secrets") ?? ""), metadata: some(text("labels"), "label"), env: some(text("env"), "variable"),
  };
}

function Create() {
  const { value: snapshots } = useRead(() => bothy.snapshots.list({ limit: 1000 }).all(), "");
  const { value: templates, trouble: unread } = useRead(() => bothy.templates.list(), "");
  const [trouble, attempt] = useTrouble();
  const form = useRef<HTMLFormElement>(null);
  const [shown, setShown] = useState<{ params?: CreateParams; trouble?: string }>({ params: {} });
  const [coded, setCoded] = useState(false);
  const [language, setLanguage] = useState<(typeof languages)[number]>("CLI");
  const look = () => {
    try {
      setShown({ params: asked(form.current!) });
    } catch (error) {
      setShown({ trouble: textOf(error) });
    }
  };
  useEffect(look, [templates, snapshots]);
  const make = () => attempt(async () => go(`sandboxes/${(await bothy.sandboxes.create(asked(form.current!))).id}`));
  const field = (name: string, label: string, type = "text") => <label>{label}<input name={name} type={type} step="any" /></label>;
  return (
    <form ref={form} class="create" onInput={look} onSubmit={(e) => (e.preventDefault(), void make())}>
      <Trouble text={trouble || unread} />
      <label>Template<select name="template">{templates?.map((t) => <option key={t.name} selected={t.name === "python-3.12"}>{t.name}</option>)}</select></label>
      {field("name", "Name")}
      <label>Size<select name="size"><option value="">default</option><option>small</option><option>medium</option><option>large</option></select></label>
      <label>Network<select name="network"><option value="">off</option><option>restricted</option><option>open</option></select></label>
      {field("timeout", "Time-out, seconds", "number")}
      <label>From a snapshot<select name="snapshot"><option value="">none</option>{snapshots?.map((s) => <option key={s.id} value={s.id}>{s.name ? `${s.name} (${s.id})` : s.id}</option>)}</select></label>
      <details><summary>Resources and life</summary><div class="inner">
        {field("cpu", "CPUs", "number")}{field("memory", "Memory, MiB", "number")}{field("disk", "Disk, MiB", "number")}{field("idle", "Idle, seconds", "number")}{field("engine", "Engine")}{field("budget", "Budget", "number")}
        <label class="check"><input type="checkbox" name="pause" />Pause when the time is up</label>
        <label class="check"><input type="checkbox" name="resume" />Auto-resume</label>
        <label class="check"><input type="checkbox" name="accelerated" />Require KVM</label>
      </div></details>
      <details><summary>Network and secrets</summary><div class="inner">
        <label>May reach (host names)<textarea name="allow" rows={2} /></label>
        <label>May reach (address ranges)<textarea name="cidrs" rows={2} /></label>
        <label>May not reach (address ranges)<textarea name="deny" rows={2} /></label>
        {field("ports", "May reach (ports)")}{field("presets", "Presets, such as pypi or npm")}
        <label>Secrets, NAME=VALUE HOST,HOST<textarea name="secrets" rows={2} autocomplete="off" spellcheck={false} /></label>
      </div></details>
      <details><summary>Hosts</summary><div class="inner">
        <label>When its host is lost<select name="loss"><option value="">pause at its last snapshot</option><option value="resume">resume on another host</option><option value="fail">end</option></select></label>
        {field("checkpoint", "Checkpoint every, seconds", "number")}
        <label>Labels of its host, name=value<textarea name="hosts" rows={2} /></label>
      </div></details>
      <details><summary>Labels and environment</summary><div class="inner">
        <label>Labels, name=value<textarea name="labels" rows={2} /></label>
        <label>Environment, NAME=value<textarea name="env" rows={2} /></label>
      </div></details>
      <details onToggle={(e) => setCoded(e.currentTarget.open)}><summary>The same as code</summary>{coded && <div class="inner">
        <div class="chips" role="group" aria-label="Language">{languages.map((l) => <button key={l} type="button" aria-pressed={l === language} onClick={() => setLanguage(l)}>{l}</button>)}</div>
        {shown.params ? <Command>{snippet(language, shown.params, location.origin)}</Command> : <p class="trouble">{shown.trouble}</p>}
      </div>}</details>
      <div class="whole"><Button kind="main" work={make}>Create</Button></div>
    </form>
  );
}
