/** What all pages use: links, times, errors and buttons that say what they wait for. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { hasEnded, textOf } from "./server";

export function go(path: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", `/console/${path}`);
  dispatchEvent(new PopStateEvent("popstate"));
  scrollTo(0, 0);
}

export function A({ to, children, current }: { to: string; children: ComponentChildren; current?: boolean }) {
  const follow = (e: MouseEvent) => {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    go(to);
  };
  return <a href={`/console/${to}`} onClick={follow} aria-current={current ? "page" : undefined}>{children}</a>;
}

const units: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** A length of time in its two largest units, below an hour in one: 3 d 4 h, 12 min. */
export function span(seconds: number): string {
  const i = units.findIndex(([n]) => seconds >= n);
  if (i < 0) return "0 s";
  const [size, unit] = units[i]!;
  const [next, small] = units[i + 1] ?? [];
  const rest = next && size > 60 ? Math.floor((seconds % size) / next) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${small}` : ""}`;
}

const ticks = new Set<() => void>();
setInterval(() => document.hidden || ticks.forEach((f) => f()), 1000);

/** What a function returns now, and every second anew. */
function useEverySecond<T>(read: () => T): T {
  const [value, set] = useState(read);
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    const tick = () => set(latest.current());
    ticks.add(tick);
    return () => void ticks.delete(tick);
  }, []);
  const now = read();
  return now === value ? value : now;
}

/** The time as people and as machines read it. */
export const exact = (date: Date) => `${date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })}\n${date.toISOString()}`;

function Since({ date, left }: { date: Date; left?: boolean }) {
  const text = useEverySecond(() => {
    const seconds = (Date.now() - date.getTime()) / 1000;
    return span(Math.max(0, left ? -seconds : seconds));
  });
  return <time dateTime={date.toISOString()} title={exact(date)}>{text}</time>;
}

/** What the browser calls the page. */
export function setTitle(...parts: (string | undefined)[]): void {
  document.title = [...parts.filter(Boolean), "Bothy"].join(" · ");
}

/** How long ago something was, or, of what is left, how long it will be. */
export function Time({ at, left }: { at?: Date | string; left?: boolean }) {
  return at ? <Since date={new Date(at)} left={left} /> : <>–</>;
}

/** When something was, by the visitor's clock: today's without the day. */
export function Moment({ at }: { at?: Date | string }) {
  if (!at) return <>–</>;
  const date = new Date(at);
  const today = date.toDateString() === new Date().toDateString();
  return <time dateTime={date.toISOString()} title={exact(date)}>{today ? date.toLocaleTimeString() : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })}</time>;
}

/** A size in units of 1024, as everywhere in Bothy. */
export function bytes(n: number): string {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1000) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} TiB`;
}

/** Where a page says what went wrong. One whose login has ended leads back to it. */
export function useTrouble(): [string, (work: () => Promise<unknown>) => Promise<void>] {
  const [trouble, setTrouble] = useState("");
  const attempt = useCallback(async (work: () => Promise<unknown>) => {
    try {
      await work();
      setTrouble("");
    } catch (error) {
      if (hasEnded(error)) dispatchEvent(new Event("logged-out"));
      else setTrouble(textOf(error));
    }
  }, []);
  return [trouble, attempt];
}

/** What stands where there is nothing, with the next step. */
export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}

/** Keeps something in the query of the page's address, so that it can be linked to and stays after a reload. */
export function useQuery(name: string): [string, (value: string) => void] {
  const [value, set] = useState(() => new URLSearchParams(location.search).get(name) ?? "");
  const change = (next: string) => {
    const query = new URLSearchParams(location.search);
    if (next) query.set(name, next);
    else query.delete(name);
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    set(next);
  };
  return [value, change];
}

export function Trouble({ text }: { text: string }) {
  return text ? <p class="trouble" role="alert">{text}</p> : null;
}

export function Button({ work, children, kind, disabled, title, label }: { work: () => Promise<unknown>; children: ComponentChildren; kind?: string; disabled?: boolean; title?: string; label?: string }) {
  const [busy, setBusy] = useState(false);
  const working = useRef(false);
  const run = async () => {
    if (working.current) return;
    working.current = true;
    setBusy(true);
    await work().finally(() => {
      working.current = false;
      setBusy(false);
    });
  };
  // It is not disabled while it works: it would lose the focus, and with it the keys that come meanwhile.
  return <button type="button" class={kind} title={title} aria-label={label} disabled={disabled} aria-disabled={busy || undefined} aria-busy={busy} onClick={() => void run()}>{children}</button>;
}

/** A command that can be copied, or selected where the browser has no clipboard for the page. */
export function Command({ children }: { children: string }) {
  const text = useRef<HTMLElement>(null);
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(children).then(() => setCopied(true)).catch(() => getSelection()?.selectAllChildren(text.current!));
  return <span class="command"><code ref={text}>{children}</code> <button type="button" aria-label={`Copy: ${children}`} onClick={() => void (navigator.clipboard ? copy() : getSelection()?.selectAllChildren(text.current!))}>{copied ? "Copied" : "Copy"}</button></span>;
}

/** Reads something, again every so many seconds, and on demand. */
export function useRead<T>(read: () => Promise<T>, key: unknown, seconds = 0): { value?: T; trouble: string; again: () => Promise<void> } {
  const [value, setValue] = useState<T>();
  const [trouble, attempt] = useTrouble();
  const latest = useRef(read);
  latest.current = read;
  const again = useCallback(() => attempt(async () => setValue(await latest.current())), []);
  useEffect(() => {
    setValue(undefined);
    void again();
    if (!seconds) return;
    const timer = setInterval(() => void again(), seconds * 1000);
    return () => clearInterval(timer);
  }, [key]);
  return { value, trouble, again };
}

/** Hands bytes to the visitor as a file. */
export function save(name: string, content: BlobPart | BlobPart[]): void {
  const url = URL.createObjectURL(new Blob(Array.isArray(content) ? content : [content], { type: "application/octet-stream" }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
