/** Snapshots and the sandboxes that came from them, as a tree. */
import type { SandboxInfo, Snapshot } from "bothy";
import type { ComponentChildren } from "preact";
import { bothy, type Login, may } from "./server";
import { A, Button, bytes, go, save, Time, Trouble, useRead, useTrouble } from "./ui";

interface Family { snapshots: Snapshot[]; sandboxes: SandboxInfo[] }

const read = async (): Promise<Family> => ({
  snapshots: await bothy.snapshots.list({ limit: 1000 }).all(),
  sandboxes: (await bothy.sandboxes.list({ live: true, limit: 1000 }).all()).map((s) => s.info),
});

export function Tree({ login }: { login: Login }) {
  const { value, trouble, again } = useRead(read, "", 5);
  const [failed, attempt] = useTrouble();
  const act = (work: () => Promise<unknown>) => attempt(async () => (await work(), await again()));
  const roots = value?.snapshots.filter((s) => !value.snapshots.some((p) => p.id === s.parentId)) ?? [];
  return (
    <main>
      <h1>Snapshots</h1>
      <Trouble text={failed || trouble} />
      {!value && !trouble && <p role="status">Reading the snapshots…</p>}
      {value?.snapshots.length === 0 && <p>There is no snapshot. Make one on a sandbox's page, or with <code>bothy snapshot create SANDBOX</code>.</p>}
      {value && <ul class="tree">{roots.map((s) => <Node key={s.id} of={s} family={value} act={act} write={may(login, "sandboxes:write")} />)}</ul>}
    </main>
  );
}

function Node({ of: s, family, act, write }: { of: Snapshot; family: Family; act: (w: () => Promise<unknown>) => Promise<void>; write: boolean }) {
  const owner = family.sandboxes.find((x) => x.id === s.sandboxId);
  const branch = (list: ComponentChildren[]) => list.length > 0 && <ul>{list}</ul>;
  const fork = async () => go(`sandboxes/${(await bothy.sandboxes.create({ snapshotId: s.id })).id}`);
  const take = async () => save(`${s.name ?? s.id}.bothy`, [await new Response(await bothy.snapshots.export(s.id)).blob()]);
  return (
    <li>
      <div class="node">
        <b>{s.name ?? s.id}</b> {s.kind}, {bytes(s.sizeBytes)}, <Time at={s.createdAt} /> ago, of {owner ? <A to={`sandboxes/${s.sandboxId}`}>{s.sandboxId}</A> : s.sandboxId}
        {write && (
          <>
            <Button work={() => act(fork)}>Fork</Button>
            {owner && <Button work={() => act(async () => (await bothy.sandboxes.get(owner.id)).rollback(s.id))}>Roll back</Button>}
            <Button work={() => act(async () => go(`sandboxes/${(await bothy.snapshots.resume(s.id)).id}`))}>Resume</Button>
            <Button work={() => act(take)}>Export</Button>
            <Button kind="danger" work={() => act(async () => confirm("Delete this snapshot?") && bothy.snapshots.delete(s.id))}>Delete</Button>
          </>
        )}
      </div>
      {branch([
        ...family.sandboxes.filter((x) => x.parentSnapshotId === s.id).map((x) => <li key={x.id}><A to={`sandboxes/${x.id}`}>{x.name ?? x.id}</A> <span class={`state ${x.state}`}>{x.state}</span></li>),
        ...family.snapshots.filter((x) => x.parentId === s.id).map((x) => <Node key={x.id} of={x} family={family} act={act} write={write} />),
      ])}
    </li>
  );
}
