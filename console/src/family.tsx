/** The family of sandboxes as a picture: lives are lines, forks branch, rollbacks lead back. A dot shows what changed, and is forked from. */
import type { SnapshotChanges } from "bothy";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Snapshot } from "bothy";
import { beside, type Dot, type Family, type Line, type Picture as Placed, place, row } from "./lineage";
import { bothy, textOf } from "./server";
import { A, Button, bytes, Moment } from "./ui";

interface Props { family: Family; act: (w: () => Promise<unknown>) => Promise<void>; compare: (s: Snapshot) => void; write: boolean }

const nameOf = (d: Dot, lines: Line[]) => {
  const of = lines.find((l) => l.id === d.sandbox)?.name ?? d.sandbox;
  return d.snapshot ? `Snapshot ${d.snapshot.name ?? d.snapshot.id} of ${of}` : `${of}, ${d.info!.state}`;
};

export function Picture({ family, act, compare, write }: Props) {
  // It is placed anew when something has happened, and once a minute for the time that passes.
  const minute = Math.floor(Date.now() / 60_000);
  const seen = JSON.stringify([minute, family.snapshots.map((s) => [s.id, s.name]), family.sandboxes.map((x) => [x.id, x.name, x.state, x.resumed?.at])]);
  const placed = useMemo(() => place(family, Date.now()), [seen]);
  const [over, setOver] = useState("");
  const [chosen, setChosen] = useState("");
  const [focused, setFocused] = useState("");
  const frame = useRef<HTMLDivElement>(null);
  const panel = useRef<HTMLElement>(null);
  const find = (id: string) => placed.dots.find((d) => d.id === id);
  const shown = find(chosen) ?? find(over) ?? find(focused);
  const stop = find(focused)?.id ?? placed.dots.at(-1)?.id;
  const focus = (id: string) => frame.current?.querySelector<SVGGElement>(`[data-dot="${CSS.escape(id)}"]`)?.focus();
  useLayoutEffect(() => { frame.current?.scrollTo({ left: frame.current.scrollWidth }); }, [placed.dots.length > 0]);
  useLayoutEffect(() => { if (chosen) panel.current?.querySelector<HTMLElement>("button")?.focus(); }, [chosen]);
  const dotOf = (e: Event) => (e.target as Element).closest("[data-dot]")?.getAttribute("data-dot") ?? "";
  const key = (e: KeyboardEvent) => {
    const at = find(dotOf(e));
    if (!at) return;
    if (e.key === "Enter" || e.key === " ") setChosen(at.id);
    else if (e.key === "Escape") setChosen("");
    else {
      const next = beside(placed.dots, at, e.key);
      if (!next && !e.key.startsWith("Arrow")) return;
      if (next) focus(next.id);
    }
    e.preventDefault();
  };
  const close = () => {
    const id = chosen;
    setChosen("");
    focus(id);
  };
  const drawn = useMemo(() => <Drawing of={placed} stop={stop} chosen={chosen} />, [placed, stop, chosen]);
  if (!placed.dots.length) return null;
  return (
    <section class="family" aria-label="Family">
      <div class="frame" ref={frame} onKeyDown={key} onClick={(e) => dotOf(e) && setChosen(dotOf(e))} onPointerOver={(e) => setOver(dotOf(e))} onPointerLeave={() => setOver("")}
        onFocusIn={(e) => dotOf(e) && setFocused(dotOf(e))}>{drawn}</div>
      <aside ref={panel} aria-label="Chosen" onKeyDown={(e) => e.key === "Escape" && close()}>
        {shown ? <Details key={shown.id} dot={shown} lines={placed.lines} pinned={shown.id === chosen} close={close} act={act} compare={compare} write={write} />
          : <p class="soft">A line is the life of a sandbox. Forks branch off, and rollbacks lead back. Point at a dot, or move with the arrow keys, to see what changed there; choose it to fork from it.</p>}
      </aside>
    </section>
  );
}

function Drawing({ of: { dots, lines, back, ticks, width, height }, stop, chosen }: { of: Placed; stop?: string; chosen: string }) {
  const days = ticks.length > 0 && new Date(ticks[0]!.at).toDateString() !== new Date(ticks.at(-1)!.at).toDateString();
  const text = (at: number) => new Date(at).toLocaleString(undefined, days ? { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" } : { timeStyle: "medium" });
  return (
    <svg width={width} height={height} role="group" aria-label="Sandboxes, their snapshots and forks, by time">
      <defs><marker id="to" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
      <g class="times" aria-hidden="true">{ticks.map((t) => <g key={t.x}><line x1={t.x} x2={t.x} y1={18} y2={height} /><text x={t.x + 3} y={13}>{text(t.at)}</text></g>)}</g>
      {lines.map((l) => (
        <g key={l.id} class={`life-of ${l.info?.state ?? "gone"}`}>
          {l.forkX !== undefined && <path class="branch" d={`M${l.forkX} ${l.forkY}V${l.y - 8}Q${l.forkX} ${l.y} ${l.forkX + Math.min(8, l.x - l.forkX)} ${l.y}H${l.x}`} />}
          <path d={`M${l.x} ${l.y}H${l.asleep ?? l.end}`} />
          {l.asleep !== undefined && <path class="asleep" d={`M${l.asleep} ${l.y}H${l.end}`} />}
          {(!l.info || l.info.ended) && <path d={`M${l.end} ${l.y - 4}v8`} />}
          <text x={l.end + 12} y={l.y + 4}>{l.name.length > 26 ? `${l.name.slice(0, 25)}…` : l.name}</text>
        </g>
      ))}
      {back.map((b) => <path key={b.id} class="back" d={`M${b.x1} ${b.y - 7}C${b.x1} ${b.y - row / 2 - 4} ${b.x2} ${b.y - row / 2 - 4} ${b.x2} ${b.y - 8}`} marker-end="url(#to)" />)}
      {dots.map((d) => (
        <g key={d.id} data-dot={d.id} role="button" tabindex={d.id === stop ? 0 : -1} aria-label={nameOf(d, lines)} aria-pressed={d.id === chosen}
          class={d.snapshot ? `dot ${d.snapshot.kind}${d.snapshot.checkpoint ? " checkpoint" : ""}` : `dot now ${d.info!.state}`}>
          <circle class="reach" cx={d.x} cy={d.y} r={10} /><circle cx={d.x} cy={d.y} r={d.snapshot?.checkpoint ? 3.5 : 5.5} />
        </g>
      ))}
    </svg>
  );
}

const few = 8;
const seen = new Map<string, Promise<SnapshotChanges>>();

/** Snapshots do not change, so what differs between two is asked for once. */
function changesOf(id: string, since: string): Promise<SnapshotChanges> {
  const key = `${since} ${id}`;
  if (!seen.has(key)) {
    if (seen.size > 500) seen.clear();
    const asked = bothy.snapshots.changes(id, since, { limit: few });
    seen.set(key, asked);
    asked.catch(() => seen.delete(key));
  }
  return seen.get(key)!;
}

interface DetailsProps extends Omit<Props, "family"> { dot: Dot; lines: Line[]; pinned: boolean; close: () => void }

function Details({ dot, lines, pinned, close, act, compare, write }: DetailsProps) {
  const { snapshot: s, info, from } = dot;
  const line = lines.find((l) => l.id === dot.sandbox)!;
  const live = !!line.info && !line.info.ended;
  const [changes, setChanges] = useState<SnapshotChanges | string>();
  const [made, setMade] = useState<string[]>([]);
  useEffect(() => {
    if (!s || !from) return;
    let here = true;
    const wait = setTimeout(() => changesOf(s.id, from.id).then((c) => here && setChanges(c), (error) => here && setChanges(textOf(error))), 150);
    return () => {
      here = false;
      clearTimeout(wait);
    };
  }, [s?.id, from?.id]);
  const fork = () => act(async () => {
    const copies = s ? [await bothy.sandboxes.create({ snapshotId: s.id })] : await (await bothy.sandboxes.get(dot.sandbox)).fork(1);
    setMade((old) => [...old, ...copies.map((c) => c.id)]);
  });
  const back = () => act(async () => confirm(`Roll ${line.name} back to ${s!.name ?? s!.id}? What it is now is kept as a snapshot.`) && (await bothy.sandboxes.get(dot.sandbox)).rollback(s!.id));
  return (
    <>
      <div class="bar">
        <h2>{s ? s.name ?? s.id : line.name}</h2>
        <small>{s ? <>{s.kind} · {bytes(s.sizeBytes)} · <Moment at={s.createdAt} /> · of {live ? <A to={`sandboxes/${dot.sandbox}`}>{line.name}</A> : line.name}</> : <><span class={`state ${info!.state}`}>{info!.state}</span> since <Moment at={info!.startedAt ?? info!.createdAt} /></>}</small>
        {pinned && (
          <>
            {write && <Button kind="main" work={fork}>Fork from here</Button>}
            {write && s && live && <Button work={back}>Roll back to here</Button>}
            {s && from && <button type="button" onClick={() => compare(s)}>All changes</button>}
            {!s && <A to={`sandboxes/${dot.sandbox}`}>Open</A>}
            <button type="button" class="quiet" onClick={close}>Close</button>
          </>
        )}
      </div>
      {made.length > 0 && <p class="note" role="status">Forked: {made.map((id) => <span key={id}><A to={`sandboxes/${id}`}>{id}</A> </span>)}</p>}
      {s && !from && <p class="soft">It is the first of its line.</p>}
      {from && typeof changes === "string" && <p class="trouble">{changes}</p>}
      {from && !changes && <p class="soft">Comparing with {from.name ?? from.id}…</p>}
      {from && typeof changes === "object" && (
        <ul class="changes" aria-label={`Changes since ${from.name ?? from.id}`}>
          {changes.items.length === 0 && <li class="soft">No file differs from {from.name ?? from.id}.</li>}
          {changes.items.map((c) => <li key={c.path}><span class={c.change === "removed" ? "no" : c.change === "added" ? "yes" : "warn"}>{c.change}</span> {c.path}{c.type === "directory" && "/"}</li>)}
          {changes.truncated && <li class="soft">and more</li>}
        </ul>
      )}
    </>
  );
}
