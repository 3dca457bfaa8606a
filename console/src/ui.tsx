/** What all pages use: links, times, errors and buttons that say what they wait for. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { hasEnded, textOf } from "./server";

export function go(path: string): void {
  history.pushState(null, "", `/console/${path}`);
  dispatchEvent(new PopStateEvent("popstate"));
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

export function span(seconds: number): string {
  const [size, unit] = units.find(([n]) => Math.abs(seconds) >= n) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}

export function Time({ at, left }: { at?: Date | string; left?: boolean }) {
  if (!at) return <>–</>;
  const date = new Date(at);
  const seconds = (Date.now() - date.getTime()) / 1000;
  return <time dateTime={date.toISOString()} title={date.toLocaleString()}>{span(Math.max(0, left ? -seconds : seconds))}</time>;
}

export function bytes(n: number): string {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
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

export function Trouble({ text }: { text: string }) {
  return text ? <p class="trouble" role="alert">{text}</p> : null;
}

export function Button({ work, children, kind, disabled }: { work: () => Promise<unknown>; children: ComponentChildren; kind?: string; disabled?: boolean }) {
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    await work().finally(() => setBusy(false));
  };
  return <button type="button" class={kind} disabled={busy || disabled} aria-busy={busy} onClick={() => void run()}>{children}</button>;
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
