/** What a sandbox uses, as lines that move: the last ten minutes, of which the server has measured the older ones. */
import type { BothyEvent, Metrics, Sandbox } from "bothy";
import { useEffect, useState } from "preact/hooks";
import { nameOfEvent } from "./events";
import { bytes, span, Trouble, useRead } from "./ui";

const shownMs = 10 * 60_000;

interface Point { at: number; value: number }

/** What a counter grew by in a second. One that was set back, as by a restart, has grown by nothing. */
const rate = (seen: Metrics[], of: (m: Metrics) => number): Point[] =>
  seen.slice(1).map((m, i) => ({ at: +m.time, value: Math.max(0, of(m) - of(seen[i]!)) / Math.max(0.001, (+m.time - +seen[i]!.time) / 1000) }));
const level = (seen: Metrics[], of: (m: Metrics) => number): Point[] => seen.map((m) => ({ at: +m.time, value: of(m) }));

export function Plots({ sandbox, events }: { sandbox: Sandbox; events: BothyEvent[] }) {
  const [seen, setSeen] = useState<Metrics[]>([]);
  const add = (more: Metrics[]) => setSeen((old) => {
    const all = new Map([...old, ...more].map((m) => [+m.time, m]));
    return [...all.values()].sort((a, b) => +a.time - +b.time).filter((m) => +m.time > Date.now() - shownMs);
  });
  useEffect(() => {
    setSeen([]);
    void sandbox.metricsHistory({ from: new Date(Date.now() - shownMs) }).then(add, () => undefined);
  }, [sandbox.id]);
  const { value, trouble } = useRead(() => sandbox.metrics(), sandbox.id, 2);
  useEffect(() => {
    if (value) add([value]);
  }, [value]);
  const [over, setOver] = useState<number>();
  const last = seen.at(-1);
  const frame = { begin: +(seen[0]?.time ?? 0), end: +(last?.time ?? 1), over, setOver, events };
  return (
    <>
      <Trouble text={trouble} />
      <div class="plots">
        <Plot {...frame} name="CPU" points={rate(seen, (m) => m.cpuSeconds)} limit={last?.cpuCount} text={(v) => `${(v * 100).toFixed(0)} %`} of={last && `of ${last.cpuCount * 100} %`} />
        <Plot {...frame} name="Memory" points={level(seen, (m) => m.memoryBytes)} limit={last?.memoryLimitBytes} text={bytes} of={last && `of ${bytes(last.memoryLimitBytes)}`} />
        <Plot {...frame} name="Disk" points={level(seen, (m) => m.diskBytes)} limit={last?.diskLimitBytes} text={bytes} of={last && `of ${bytes(last.diskLimitBytes)}`} />
        <Plot {...frame} name="Network" points={rate(seen, (m) => m.egressBytes + m.ingressBytes)} text={(v) => `${bytes(v)}/s`} of={last && `${bytes(last.egressBytes)} sent, ${bytes(last.ingressBytes)} received`} />
      </div>
    </>
  );
}

const width = 300, height = 60;

/** What all plots of a page share: the time that they show, and the time that is pointed at in one of them. */
interface Frame { begin: number; end: number; over?: number; setOver: (at?: number) => void; events: BothyEvent[] }

/** One line. Its top is the limit, where there is one. */
function Plot({ name, points, limit = 0, text, of, begin, end, over, setOver, events }: Frame & { name: string; points: Point[]; limit?: number; text: (v: number) => string; of?: string }) {
  const top = Math.max(limit, limit ? 0 : 1.08 * Math.max(...points.map((p) => p.value)), 1e-9);
  const x = (time: number) => ((time - begin) / Math.max(1, end - begin)) * width;
  const y = (value: number) => height - Math.min(1, value / top) * height;
  const line = points.map((p) => `${x(p.at).toFixed(1)},${y(p.value).toFixed(1)}`).join(" ");
  const at = over === undefined ? undefined : points.reduce<Point | undefined>((best, p) => (!best || Math.abs(p.at - over) < Math.abs(best.at - over) ? p : best), undefined);
  const said = at ?? points.at(-1);
  const move = (e: PointerEvent) => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    setOver(begin + ((e.clientX - box.left) / box.width) * (end - begin));
  };
  return (
    <figure>
      <figcaption>{name} <b>{said ? text(said.value) : "…"}</b></figcaption>
      <svg viewBox={`0 -1 ${width} ${height + 2}`} preserveAspectRatio="none" role="img" aria-label={`${name} over time`} onPointerMove={move} onPointerLeave={() => setOver(undefined)}>
        {[0, 0.25, 0.5, 0.75].map((share) => <line key={share} class="grid" x1={0} x2={width} y1={height * share} y2={height * share} />)}
        {points.length > 1 && <polygon points={`${x(points[0]!.at)},${height} ${line} ${x(points.at(-1)!.at)},${height}`} />}
        <polyline points={line} />
        {events.filter((e) => +e.time >= begin && +e.time <= end).map((e) => <line key={e.id} class="event" x1={x(+e.time)} x2={x(+e.time)} y1={0} y2={height}><title>{nameOfEvent(e)}</title></line>)}
        {at && <line class="at" x1={x(at.at)} x2={x(at.at)} y1={0} y2={height} />}
      </svg>
      <div class="ends"><span>{at ? new Date(at.at).toLocaleTimeString() : points.length > 1 ? `${span((end - begin) / 1000)} ago` : ""}</span><span>{of}</span></div>
    </figure>
  );
}
