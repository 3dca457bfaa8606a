/** The sandboxes, kept true by the stream of events; only the rows in sight are drawn. */
import type { Network, NetworkMode, SandboxInfo, Secret, Size } from "bothy";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { bothy, hasEnded, isLive, type Login, may } from "./server";
import { A, Button, go, Time, Trouble, useRead, useTrouble, Command } from "./ui";

const rowHeight = 36;

/** Follows what happens in the project, and says whether the connection stands. */
export function useEvents(changed: (sandboxId?: string) => void): boolean {
  const [connected, setConnected] = useState(true);
  useEffect(() => {
    const stop = new AbortController();
    const follow = async () => {
      let since = 0;
      for await (const e of bothy.events({ follow: false, signal: stop.signal })) since = e.id;
      changed();
      setConnected(true);
      for await (const e of bothy.events({ since, rejoin: false, signal: stop.signal })) changed(e.sandboxId);
    };
    const forever = async () => {
      while (!stop.signal.aborted) {
        await follow().catch((error) => {
          if (hasEnded(error)) dispatchEvent(new Event("logged-out"));
        });
        if (stop.signal.aborted) return;
        setConnected(false);
        await new Promise((r) => setTimeout(r, 1000));
      }
    };
    void forever();
    return () => stop.abort();
  }, []);
  return connected;
}

function useSandboxes() {
  const [all, setAll] = useState(new Map<string, SandboxInfo>());
  const [ready, setReady] = useState(false);
  const [trouble, attempt] = useTrouble();
  const changed = (id?: string) =>
    void attempt(async () => {
      if (!id) {
        const list = await bothy.sandboxes.list({ live: true, limit: 1000 }).all();
        setAll(new Map(list.map((s) => [s.id, s.info])));
        return setReady(true);
      }
      const { info } = await bothy.sandboxes.get(id);
      setAll((old) => {
        const next = new Map(old);
        if (isLive(info)) next.set(id, info);
        else next.delete(id);
        return next;
      });
    });
  return { all, ready, trouble, connected: useEvents(changed), attempt };
}

const matches = (s: SandboxInfo, words: string[]) => {
  const text = [s.id, s.name, s.state, s.template, s.engine, ...Object.entries(s.metadata ?? {}).map(([k, v]) => `${k}=${v}`)].join(" ").toLowerCase();
  return words.every((w) => text.includes(w));
};

export const networkText = (n: Network) => (typeof n === "string" ? n : (n.mode ?? "restricted"));

export function SandboxList({ login }: { login: Login }) {
  const { all, ready, trouble, connected, attempt } = useSandboxes();
  const [filter, setFilter] = useState("");
  const [chosen, setChosen] = useState(new Set<string>());
  const [making, setMaking] = useState(false);
  const rows = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    return [...all.values()].filter((s) => matches(s, words)).sort((a, b) => +new Date(b.createdAt) - +new Date(a.createdAt));
  }, [all, filter]);
  const write = may(login, "sandboxes:write");
  const picked = rows.filter((s) => chosen.has(s.id));
  const end = () => attempt(async () => {
    if (!confirm(`Terminate ${picked.length} sandboxes?`)) return;
    const left = [...picked];
    const some = async () => {
      for (let s = left.pop(); s; s = left.pop()) {
        await (await bothy.sandboxes.get(s.id)).terminate();
        setChosen((old) => new Set([...old].filter((id) => id !== s!.id)));
      }
    };
    await Promise.all(Array.from({ length: 8 }, some));
  });
  return (
    <main>
      <div class="bar">
        <h1>Sandboxes <small>{rows.length}</small></h1>
        <input type="search" aria-label="Filter" placeholder="id, name, state, template, label=value" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        {write && <button type="button" onClick={() => setMaking(!making)} aria-expanded={making}>New sandbox</button>}
        {write && <Button kind="danger" disabled={picked.length === 0} work={end}>Terminate {picked.length || ""}</Button>}
      </div>
      {!connected && <p class="lost" role="status">The connection to the server is lost. Trying again…</p>}
      <Trouble text={trouble} />
      {making && <Create />}
      {!ready && !trouble && <p role="status">Reading the list…</p>}
      {ready && all.size === 0 && <p>No sandbox runs. Make one above, or with <Command>bothy create --template python-3.12</Command></p>}
      {rows.length > 0 && <Rows rows={rows} chosen={chosen} choose={write ? setChosen : undefined} />}
    </main>
  );
}

function Rows({ rows, chosen, choose }: { rows: SandboxInfo[]; chosen: Set<string>; choose?: (s: Set<string>) => void }) {
  const frame = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const first = Math.max(0, Math.min(Math.floor(top / rowHeight) - 10, rows.length - 70));
  const shown = rows.slice(first, first + 70);
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    choose?.(next);
  };
  return (
    <div class="frame" ref={frame} tabIndex={0} role="region" aria-label="Sandboxes" onScroll={() => setTop(frame.current!.scrollTop)}>
      <table class="list">
        <thead><tr><th><span class="hidden">Choose</span></th><th>Sandbox</th><th>State</th><th>Template</th><th>Engine</th><th>Age</th><th>Time left</th><th>CPU</th><th>Memory</th><th>Network</th><th>Labels</th></tr></thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" style={{ height: first * rowHeight }} />}
          {shown.map((s) => (
            <tr key={s.id} class="row">
              <td>{choose && <input type="checkbox" aria-label={`Choose ${s.id}`} checked={chosen.has(s.id)} onChange={() => toggle(s.id)} />}</td>
              <td><A to={`sandboxes/${s.id}`}>{s.name ? `${s.name} (${s.id})` : s.id}</A></td>
              <td><span class={`state ${s.state}`}>{s.state}</span></td><td>{s.template}</td><td>{s.engine}</td>
              <td><Time at={s.createdAt} /></td><td><Time at={s.expiresAt} left /></td><td>{s.cpu}</td><td>{s.memoryMb} MB</td>
              <td>{networkText(s.network)}</td><td>{Object.entries(s.metadata ?? {}).map(([k, v]) => <span key={k} class="label">{k}={v}</span>)}</td>
            </tr>
          ))}
          {rows.length > first + 70 && <tr aria-hidden="true" style={{ height: (rows.length - first - 70) * rowHeight }} />}
        </tbody>
      </table>
    </div>
  );
}

const pairs = (text: string) => Object.fromEntries(text.split("\n").filter((l) => l.includes("=")).map((l) => [l.slice(0, l.indexOf("=")).trim(), l.slice(l.indexOf("=") + 1)]));

const words = (text?: string) => text?.split(/[\s,]+/).filter(Boolean);

/** Lines of NAME=VALUE HOST,HOST. A value may have no spaces, as no key has. */
function secrets(text: string): Secret[] | undefined {
  const list = text.split("\n").filter((l) => l.trim()).map((line, i) => {
    const found = /^\s*(\w+)=(\S+)\s+(\S+)\s*$/.exec(line);
    if (!found) throw new Error(`Line ${i + 1} of the secrets is not NAME=VALUE HOST,HOST.`);
    return { name: found[1]!, value: found[2]!, hosts: found[3]!.split(",") };
  });
  return list.length ? list : undefined;
}

function Create() {
  const { value: snapshots } = useRead(() => bothy.snapshots.list({ limit: 1000 }).all(), "");
  const { value: templates, trouble: unread } = useRead(() => bothy.templates.list(), "");
  const [trouble, attempt] = useTrouble();
  const form = useRef<HTMLFormElement>(null);
  const make = () => attempt(async () => {
    const f = new FormData(form.current!);
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
    const s = await bothy.sandboxes.create({
      template: text("snapshot") ? undefined : text("template"), name: text("name"), size: text("size") as Size | undefined, engine: text("engine"),
      cpu: number("cpu"), memoryMb: number("memory"), diskMb: number("disk"), timeoutSeconds: number("timeout"), idleSeconds: number("idle"),
      onTimeout: f.get("pause") ? "pause" : undefined, autoResume: f.get("resume") ? true : undefined, network: policy(), snapshotId: text("snapshot"), requireAcceleration: f.get("accelerated") ? true : undefined,
      budget: number("budget"), secrets: secrets(text("secrets") ?? ""), metadata: pairs(text("labels") ?? ""), env: pairs(text("env") ?? ""),
    });
    go(`sandboxes/${s.id}`);
  });
  const field = (name: string, label: string, type = "text") => <label>{label}<input name={name} type={type} step="any" /></label>;
  return (
    <form ref={form} class="create" onSubmit={(e) => e.preventDefault()}>
      <Trouble text={trouble || unread} />
      <label>Template<select name="template">{templates?.map((t) => <option key={t.name}>{t.name}</option>)}</select></label>
      {field("name", "Name")}
      <label>From a snapshot<select name="snapshot"><option value="">none</option>{snapshots?.map((s) => <option key={s.id} value={s.id}>{s.name ? `${s.name} (${s.id})` : s.id}</option>)}</select></label>
      <label>Size<select name="size"><option value="">default</option><option>small</option><option>medium</option><option>large</option></select></label>
      {field("cpu", "CPUs", "number")}{field("memory", "Memory, MB", "number")}{field("disk", "Disk, MB", "number")}
      {field("timeout", "Lives, seconds", "number")}{field("idle", "Idle, seconds", "number")}{field("engine", "Engine")}{field("budget", "Budget", "number")}
      <label>Network<select name="network"><option value="">off</option><option>restricted</option><option>open</option></select></label>
      <label class="check"><input type="checkbox" name="pause" />Pause when the time is up</label>
      <label class="check"><input type="checkbox" name="resume" />Wake when it is asked for</label>
      <label>Labels, name=value<textarea name="labels" rows={2} /></label>
      <label>Environment, NAME=value<textarea name="env" rows={2} /></label>
      <label>May reach (host names)<textarea name="allow" rows={2} /></label>
      <label>May reach (address ranges)<textarea name="cidrs" rows={2} /></label>
      <label>May not reach (address ranges)<textarea name="deny" rows={2} /></label>
      {field("ports", "May reach (ports)")}{field("presets", "Lists, such as pypi or npm")}
      <label>Secrets, NAME=VALUE HOST,HOST<textarea name="secrets" rows={2} autocomplete="off" spellcheck={false} /></label>
      <label class="check"><input type="checkbox" name="accelerated" />Refuse an emulated machine</label>
      <Button work={make}>Create</Button>
    </form>
  );
}
