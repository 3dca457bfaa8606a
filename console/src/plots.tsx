/** What a sandbox uses, as lines that move: the last ten minutes, of which the server has measured the older ones. */
import type { Metrics, Sandbox } from "bothy";
import { useEffect, useState } from "preact/hooks";
import { bytes, span, Trouble, useRead } from "./ui";

const shownMs = 10 * 60_000;

interface Point { at: number; value: number }

/** What a counter grew by in a second. One that was set back, as by a restart, has grown by nothing. */
const rate = (seen: Metrics[], of: (m: Metrics) => number): Point[] =>
  seen.slice(1).map((m, i) => ({ at: +m.time, value: Math.max(0, of(m) - of(seen[i]!)) / Math.max(0.001, (+m.time - +seen[i]!.time) / 1000) }));
const level = (seen: Metrics[], of: (m: Metrics) => number): Point[] => seen.map((m) => ({ at: +m.time, value: of(m) }));

export function Plots({ sandbox }: { sandbox: Sandbox }) {
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
  const last = seen.at(-1);
  return (
    <>
      <Trouble text={trouble} />
      <div class="plots">
        <Plot name="CPU" points={rate(seen, (m) => m.cpuSeconds)} text={(v) => `${(v * 100).toFixed(0)} %`} of={last && `of ${last.cpuCount * 100} %`} />
        <Plot name="Memory" points={level(seen, (m) => m.memoryBytes)} text={bytes} of={last && `of ${bytes(last.memoryLimitBytes)}`} />
        <Plot name="Disk" points={level(seen, (m) => m.diskBytes)} text={bytes} of={last && `of ${bytes(last.diskLimitBytes)}`} />
        <Plot name="Network" points={rate(seen, (m) => m.egressBytes + m.ingressBytes)} text={(v) => `${bytes(v)}/s`} of={last && `${bytes(last.egressBytes)} sent, ${bytes(last.ingressBytes)} received`} />
      </div>
    </>
  );
}

const width = 300, height = 60;

function Plot({ name, points, text, of }: { name: string; points: Point[]; text: (v: number) => string; of?: string }) {
  const [over, setOver] = useState<number>();
  const top = Math.max(...points.map((p) => p.value), 1e-9) * 1.08;
  const begin = points[0]?.at ?? 0, end = points.at(-1)?.at ?? 1;
  const x = (p: Point) => ((p.at - begin) / Math.max(1, end - begin)) * width;
  const line = points.map((p) => `${x(p).toFixed(1)},${(height - (p.value / top) * height).toFixed(1)}`).join(" ");
  const at = over === undefined ? undefined : points.reduce<Point | undefined>((best, p) => (!best || Math.abs(x(p) - over) < Math.abs(x(best) - over) ? p : best), undefined);
  const said = at ?? points.at(-1);
  const move = (e: PointerEvent) => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    setOver(((e.clientX - box.left) / box.width) * width);
  };
  return (
    <figure>
      <figcaption>{name} <b>{said ? text(said.value) : "…"}</b></figcaption>
      <svg viewBox={`0 -1 ${width} ${height + 2}`} preserveAspectRatio="none" role="img" aria-label={`${name} over time`} onPointerMove={move} onPointerLeave={() => setOver(undefined)}>
        {[0.25, 0.5, 0.75].map((y) => <line key={y} class="grid" x1={0} x2={width} y1={height * y} y2={height * y} />)}
        {points.length > 1 && <polygon points={`0,${height} ${line} ${width},${height}`} />}
        <polyline points={line} />
        {at && <line class="at" x1={x(at)} x2={x(at)} y1={0} y2={height} />}
      </svg>
      <div class="ends"><span>{at ? new Date(at.at).toLocaleTimeString() : points.length > 1 ? `${span((end - begin) / 1000)} ago` : ""}</span><span>{of}</span></div>
    </figure>
  );
}
