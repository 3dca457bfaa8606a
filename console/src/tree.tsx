/** Snapshots and the sandboxes that came from them, as a tree. */
import type { SandboxInfo, Snapshot } from "bothy";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { bothy, type Login, may } from "./server";
import { A, Button, bytes, Command, Empty, go, save, Time, Trouble, useRead, useTrouble } from "./ui";

interface Family { snapshots: Snapshot[]; sandboxes: SandboxInfo[] }

const read = async (): Promise<Family> => ({
  snapshots: await bothy.snapshots.list({ limit: 1000 }).all(),
  sandboxes: (await bothy.sandboxes.list({ live: true, limit: 1000 }).all()).map((s) => s.info),
});

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
  const roots = value?.snapshots.filter((s) => !value.snapshots.some((p) => p.id === s.parentId)) ?? [];
  return (
    <main>
      <div class="bar"><h1>Snapshots {value && <small>{value.snapshots.length}</small>}</h1>{value && value.snapshots.length > 0 && <small>{bytes(value.snapshots.reduce((n, s) => n + s.sizeBytes, 0))} in all</small>}</div>
      <Trouble text={failed || trouble} />
      {!value && !trouble && <p class="waits" role="status">Reading the snapshots…</p>}
      {value?.snapshots.length === 0 && <Empty><p>There is no snapshot.</p><p>Make one on a sandbox's page, or with <Command>bothy snapshot SANDBOX</Command></p></Empty>}
      {pair && all.some((s) => s.id === pair.since) && all.some((s) => s.id === pair.id) && <Comparison pair={pair} choose={choose} snapshots={all} />}
      {value && <ul class="tree">{roots.map((s) => <Node key={s.id} of={s} family={value} act={act} compare={compare} write={may(login, "sandboxes:write")} />)}</ul>}
    </main>
  );
}

interface NodeProps { of: Snapshot; family: Family; act: (w: () => Promise<unknown>) => Promise<void>; compare: (s: Snapshot) => void; write: boolean }

function Node({ of: s, family, act, compare, write }: NodeProps) {
  const owner = family.sandboxes.find((x) => x.id === s.sandboxId);
  const branch = (list: ComponentChildren[]) => list.length > 0 && <ul>{list}</ul>;
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
      {branch([
        ...family.sandboxes.filter((x) => x.parentSnapshotId === s.id).map((x) => <li key={x.id}><div class="node"><span class={`state ${x.state}`}>{x.state}</span> <A to={`sandboxes/${x.id}`}>{x.name ?? x.id}</A> <small><Time at={x.createdAt} /> ago</small></div></li>),
        ...family.snapshots.filter((x) => x.parentId === s.id).map((x) => <Node key={x.id} of={x} family={family} act={act} compare={compare} write={write} />),
      ])}
    </li>
  );
}
