/** Where the lives of sandboxes, their snapshots, forks and rollbacks are drawn: a line for each sandbox, on one axis of time. */
import type { SandboxInfo, Snapshot } from "bothy";
import { isLive } from "./server";

export interface Family { snapshots: Snapshot[]; sandboxes: SandboxInfo[] }

/** A snapshot, or what a sandbox is now. */
export interface Dot { id: string; x: number; y: number; sandbox: string; snapshot?: Snapshot; info?: SandboxInfo; from?: Snapshot }
export interface Line { id: string; name: string; x: number; y: number; end: number; asleep?: number; info?: SandboxInfo; forkX?: number; forkY?: number }
export interface Picture { dots: Dot[]; lines: Line[]; back: { id: string; x1: number; x2: number; y: number }[]; ticks: { x: number; at: number }[]; width: number; height: number }

export const row = 34;
const left = 14, top = 24, apart = 20, room = 220;

/** The sandbox was made from this snapshot, and not by a fork of what ran. */
export const isFrom = (x: SandboxInfo, s: Snapshot) => x.parentSnapshotId === s.id && (!x.forkedAt || +x.forkedAt === +s.createdAt);

/** The width of a time: long ones are shortened, so that a night does not hide what was done in a minute. */
const width = (ms: number) => Math.min(140, 14 * Math.log2(1 + ms / 4000));

interface Life { id: string; info?: SandboxInfo; snapshots: Snapshot[]; children: Life[]; parent?: Life; begin: number; end: number; forked?: number }

function lives({ snapshots, sandboxes }: Family, now: number): Life[] {
  const all = new Map<string, Life>();
  for (const info of sandboxes) all.set(info.id, { id: info.id, info, snapshots: [], children: [], begin: +info.createdAt, end: isLive(info) ? now : +(info.ended?.at ?? info.createdAt) });
  for (const s of [...snapshots].sort((a, b) => +a.createdAt - +b.createdAt)) {
    let life = all.get(s.sandboxId);
    if (!life) all.set(s.sandboxId, (life = { id: s.sandboxId, snapshots: [], children: [], begin: +s.createdAt, end: +s.createdAt }));
    life.snapshots.push(s);
    life.begin = Math.min(life.begin, +s.createdAt);
    life.end = Math.max(life.end, +s.createdAt);
  }
  for (const life of all.values()) {
    const parent = life.info?.parentSandboxId && life.info.parentSandboxId !== life.id ? all.get(life.info.parentSandboxId) : undefined;
    if (!parent || !life.info?.forkedAt) continue;
    life.parent = parent;
    life.forked = Math.min(+life.info.forkedAt, life.begin);
    parent.children.push(life);
    parent.begin = Math.min(parent.begin, life.forked);
    parent.end = Math.max(parent.end, life.forked);
  }
  const newest = (life: Life): number => Math.max(life.begin, ...life.snapshots.map((s) => +s.createdAt), ...life.children.map(newest));
  return [...all.values()].filter((l) => !l.parent && (l.children.length || l.snapshots.length)).map((l) => [newest(l), l] as const).sort((a, b) => b[0] - a[0]).map(([, l]) => l);
}

/** Places everything. What was forked last is next to its parent, so that no line crosses another. */
export function place(family: Family, now: number): Picture {
  const rows: Life[] = [];
  const add = (life: Life) => {
    rows.push(life);
    for (const child of life.children.sort((a, b) => b.forked! - a.forked!)) add(child);
  };
  lives(family, now).forEach(add);
  if (!rows.length) return { dots: [], lines: [], back: [], ticks: [], width: 0, height: 0 };

  // Moments in order of time; two of one line are far enough apart to be told from each other.
  interface Moment { at: number; row: number; put: (x: number) => void }
  const moments: Moment[] = [];
  const dots: Dot[] = [];
  const at = new Map<string, Dot>();
  const branches: (() => void)[] = [];
  const number = new Map(rows.map((life, i) => [life, i]));
  const known = new Map(family.snapshots.map((s) => [s.id, s]));
  const lines = rows.map((life, i): Line => {
    const y = top + i * row + row / 2;
    const line: Line = { id: life.id, name: life.info?.name ?? life.id, info: life.info, x: 0, y, end: 0 };
    const parent = life.parent;
    if (parent) {
      line.forkY = top + number.get(parent)! * row + row / 2;
      const of = parent.snapshots.find((s) => isFrom(life.info!, s));
      if (of) branches.push(() => (line.forkX = at.get(of.id)!.x));
      else moments.push({ at: life.forked!, row: number.get(parent)!, put: (x) => (line.forkX = x) });
    }
    moments.push({ at: life.begin, row: i, put: (x) => (line.x = x) });
    life.snapshots.forEach((snapshot, n) => {
      const dot: Dot = { id: snapshot.id, x: 0, y, sandbox: life.id, snapshot, from: known.get(snapshot.parentId ?? "") ?? life.snapshots[n - 1] };
      dots.push(dot);
      at.set(dot.id, dot);
      moments.push({ at: +snapshot.createdAt, row: i, put: (x) => (dot.x = x) });
    });
    const head: Dot | undefined = life.info && isLive(life.info) ? { id: `now:${life.id}`, x: 0, y, sandbox: life.id, info: life.info } : undefined;
    if (head) dots.push(head);
    moments.push({ at: life.end, row: i, put: (x) => { line.end = x; if (head) head.x = x; } });
    return line;
  });
  moments.sort((a, b) => a.at - b.at);
  const last = new Map<number, number>();
  const ticks: Picture["ticks"] = [];
  let x = left, before = moments[0]!.at;
  for (const m of moments) {
    x += width(m.at - before);
    before = m.at;
    x = Math.max(x, (last.get(m.row) ?? 0) + apart);
    last.set(m.row, x);
    m.put(x);
    if (x - (ticks.at(-1)?.x ?? -Infinity) >= 120) ticks.push({ x, at: m.at });
  }

  for (const branch of branches) branch();

  const back: Picture["back"] = [];
  for (const [i, life] of rows.entries()) {
    const own = life.snapshots;
    const lead = (from: Snapshot | undefined, to: Snapshot) => from && from !== to && back.push({ id: `${from.id} ${to.id}`, x1: at.get(from.id)!.x, x2: at.get(to.id)!.x, y: lines[i]!.y });
    own.forEach((s, n) => {
      const to = own.findIndex((o) => o.id === s.parentId);
      if (to >= 0 && to < n - 1) lead(own[n - 1], own[to]!);
    });
    // A rollback since the last snapshot is known by what the sandbox was resumed from.
    const r = life.info?.resumed;
    const until = r ? own.filter((s) => +s.createdAt <= +r.at) : [];
    const to = until.find((s) => s.id === r?.snapshotId);
    if (to && until.length === own.length) lead(own.at(-1), to);
    if (life.info?.state === "paused") lines[i]!.asleep = own.length ? at.get(own.at(-1)!.id)!.x : lines[i]!.x;
  }
  return { dots, lines, back, ticks, width: x + room, height: top + rows.length * row + 10 };
}

/** The dot that an arrow key leads to from another. */
export function beside(dots: Dot[], from: Dot, key: string): Dot | undefined {
  const better = (best: Dot | undefined, d: Dot, far: (d: Dot) => number) => (!best || far(d) < far(best) ? d : best);
  const nearest = (list: Dot[], far: (d: Dot) => number) => list.reduce<Dot | undefined>((best, d) => better(best, d, far), undefined);
  const row = dots.filter((d) => d.y === from.y);
  switch (key) {
    case "ArrowRight": return nearest(row.filter((d) => d.x > from.x), (d) => d.x);
    case "ArrowLeft": return nearest(row.filter((d) => d.x < from.x), (d) => -d.x);
    case "ArrowDown": return nearest(dots.filter((d) => d.y > from.y), (d) => (d.y - from.y) * 1e6 + Math.abs(d.x - from.x));
    case "ArrowUp": return nearest(dots.filter((d) => d.y < from.y), (d) => (from.y - d.y) * 1e6 + Math.abs(d.x - from.x));
    case "Home": return nearest(row, (d) => d.x);
    case "End": return nearest(row, (d) => -d.x);
  }
}
