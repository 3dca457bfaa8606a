/** Snapshots and the sandboxes that came from them: the family as a picture, and as a list. */
import type { SandboxInfo, Snapshot } from "bothy";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Picture } from "./family";
import { type Family, isFrom } from "./lineage";
import { bothy, isLive, type Login, may } from "./server";
import { A, Button, bytes, Command, Empty, go, save, Time, Trouble, useRead, useTrouble } from "./ui";

/** The newest ended sandboxes are read as well, since the living may be copies of them. */
async function read(): Promise<Family> {
  const [snapshots, live, ended] = await Promise.all([
    bothy.snapshots.list({ limit: 1000 }).all(),
    bothy.sandboxes.list({ live: true, limit: 1000 }).all(),
    bothy.sandboxes.list({ state: ["stopped", "failed"], limit: 500 }),
  ]);
  return { snapshots, sandboxes: [...live, ...ended.items].map((s) => s.info) };
}

interface Pair { since: string; id: string }

const nameOf = (s: Snapshot) => (s.name ? `${s.name} (${s.id})` : s.id);
const shown = 1000;

/** The files that differ between two snapshots. */
function Comparison({ pair, choose, snapshots }: { pair: Pair; choose: (p?: Pair) => void; snapshots: Snapshot[] }) {
  const { value, trouble } = useRead(async () => ({ of: pair, ...(await bothy.snapshots.changes(pair.id, pair.since, { limit: shown })) }), `${pair.since} ${pair.id}`);
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current!.focus(), []);
  const pick = (label: string, key: keyof Pair) => (
    <label>{label} <select value={pair[key]} onChange={(e) => choose({ ...pair, [key]: e.currentTarget.value })}>{snapshots.map((s) => <option key={s.id} value={s.id}>{nameOf(s)}</option>)}</select></label>
  );
  return (
    <section aria-label="Comparison">
      <div class="bar"><h2 ref={heading} tabIndex={-1}>What changed</h2>{pick("From", "since")}{pick("To", "id")}<button type="button" onClick={() => choose()}>Close</button></div>
      <Trouble text={trouble} />
      {!value && !trouble && <p role="status">Comparing the files…</p>}
      {value?.items.length === 0 && <p role="status">All files are the same.</p>}
      {value?.truncated && <p role="status">These are the first {shown}; <code>bothy snapshot diff {value.of.since} {value.of.id} --limit 10000</code> shows more.</p>}
      {value && value.items.length > 0 && (
        <div class="frame" tabIndex={0} role="region" aria-label="Changes"><table><thead><tr><th>Change</th><th>File</th><th>Size</th></tr></thead>
          <tbody>{value.items.map((c) => <tr key={c.path}><td class={c.change === "removed" ? "no" : c.change === "added" ? "yes" : ""}>{c.change}</td><td>{c.path}{c.type === "directory" && "/"}</td><td>{c.type === "file" && bytes(c.size)}</td></tr>)}</tbody></table></div>
      )}
    </section>
  );
}

export function Tree({ login }: { login: Login }) {
  const { value, trouble, again } = useRead(read, "", 5);
  const [failed, attempt] = useTrouble();
  const act = (work: () => Promise<unknown>) => attempt(async () => (await work(), await again()));
  const [pair, choose] = useState<Pair>();
  const all = value?.snapshots ?? [];
  const compare = (s: Snapshot) => {
    const others = all.filter((o) => o.id !== s.id);
    const before = others.find((o) => o.id === s.parentId) ?? others.find((o) => o.sandboxId === s.sandboxId && o.createdAt < s.createdAt) ?? others[0];
    choose({ since: before!.id, id: s.id });
  };
  const tree = useMemo(() => value && branches(value), [value]);
  const write = may(login, "sandboxes:write");
  return (
    <main>
      <div class="bar"><h1>Snapshots {value && <small>{value.snapshots.length}</small>}</h1>{value && value.snapshots.length > 0 && <small>{bytes(value.snapshots.reduce((n, s) => n + s.sizeBytes, 0))} in all</small>}</div>
      <Trouble text={failed || trouble} />
      {!value && !trouble && <p class="waits" role="status">Reading the snapshots…</p>}
      {value?.snapshots.length === 0 && <Empty><p>There is no snapshot.</p><p>Make one on a sandbox's page, or with <Command>bothy snapshot SANDBOX</Command></p></Empty>}
      {pair && all.some((s) => s.id === pair.since) && all.some((s) => s.id === pair.id) && <Comparison pair={pair} choose={choose} snapshots={all} />}
      {value && <Picture family={value} act={act} compare={compare} write={write} />}
      {value && tree && <ul class="tree">
        {tree.snapshots("").map((s) => <Node key={s.id} of={s} tree={tree} family={value} act={act} compare={compare} write={write} />)}
        {tree.forks("").map((x) => <Fork key={x.id} of={x} tree={tree} />)}
      </ul>}
    </main>
  );
}

/** What stands below what in the list: "" is the top. */
interface Branches { snapshots: (below: string) => Snapshot[]; forks: (below: string) => SandboxInfo[] }

function branches({ snapshots, sandboxes }: Family): Branches {
  const shots = new Map<string, Snapshot[]>(), forks = new Map<string, SandboxInfo[]>();
  const put = <T,>(map: Map<string, T[]>, key: string, x: T) => void (map.get(key)?.push(x) ?? map.set(key, [x]));
  const known = new Map(snapshots.map((s) => [s.id, s])), living = new Map(sandboxes.filter(isLive).map((x) => [x.id, x]));
  const parents = new Set(sandboxes.map((x) => x.parentSandboxId));
  for (const s of snapshots) put(shots, known.has(s.parentId ?? "") ? s.parentId! : "", s);
  for (const x of living.values()) {
    const from = known.get(x.parentSnapshotId ?? "");
    if (from && isFrom(x, from)) put(forks, from.id, x);
    else if (living.has(x.parentSandboxId ?? "") && x.parentSandboxId !== x.id) put(forks, x.parentSandboxId!, x);
    else if (from) put(forks, from.id, x);
    else if (parents.has(x.id) || x.parentSandboxId) put(forks, "", x);
  }
  return { snapshots: (id) => shots.get(id) ?? [], forks: (id) => forks.get(id) ?? [] };
}

const Branch = ({ children }: { children: ComponentChildren[] }) => (children.length > 0 ? <ul>{children}</ul> : null);

function Fork({ of: x, tree }: { of: SandboxInfo; tree: Branches }) {
  return (
    <li>
      <div class="node"><span class={`state ${x.state}`}>{x.state}</span> <A to={`sandboxes/${x.id}`}>{x.name ?? x.id}</A> <small><Time at={x.createdAt} /> ago</small></div>
      <Branch>{tree.forks(x.id).map((c) => <Fork key={c.id} of={c} tree={tree} />)}</Branch>
    </li>
  );
}

interface NodeProps { of: Snapshot; tree: Branches; family: Family; act: (w: () => Promise<unknown>) => Promise<void>; compare: (s: Snapshot) => void; write: boolean }

function Node({ of: s, tree, family, act, compare, write }: NodeProps) {
  const owner = family.sandboxes.find((x) => x.id === s.sandboxId && isLive(x));
  const fork = async () => go(`sandboxes/${(await bothy.sandboxes.create({ snapshotId: s.id })).id}`);
  const take = async () => save(`${s.name ?? s.id}.bothy`, [await new Response(await bothy.snapshots.export(s.id)).blob()]);
  return (
    <li>
      <div class="node">
        <span class={s.kind === "memory" ? "dot" : "dot files"} title={s.kind === "memory" ? "memory, processes and files" : "files alone"} />
        <span class="what"><b>{s.name ?? s.id}</b> <small>{s.kind} · {bytes(s.sizeBytes)} · <Time at={s.createdAt} /> ago · of {owner ? <A to={`sandboxes/${s.sandboxId}`}>{owner.name ?? s.sandboxId}</A> : s.sandboxId}</small></span>
        <span class="acts">
        {family.snapshots.length > 1 && <button type="button" class="quiet" onClick={() => compare(s)}>Compare</button>}
        {write && (
          <>
            <Button kind="quiet" work={() => act(fork)}>Fork</Button>
            {owner && <Button kind="quiet" work={() => act(async () => (await bothy.sandboxes.get(owner.id)).rollback(s.id))}>Roll back</Button>}
            <Button kind="quiet" work={() => act(async () => go(`sandboxes/${(await bothy.snapshots.resume(s.id)).id}`))}>Resume</Button>
            <Button kind="quiet" work={() => act(take)}>Export</Button>
            <Button kind="quiet danger" work={() => act(async () => confirm("Delete this snapshot?") && bothy.snapshots.delete(s.id))}>Delete</Button>
          </>
        )}
        </span>
      </div>
      <Branch>{[
        ...tree.forks(s.id).map((x) => <Fork key={x.id} of={x} tree={tree} />),
        ...tree.snapshots(s.id).map((x) => <Node key={x.id} of={x} tree={tree} family={family} act={act} compare={compare} write={write} />),
      ]}</Branch>
    </li>
  );
}
