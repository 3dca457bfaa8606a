/** The terminals of a sandbox. Each runs on when its page is left, and is joined again by whoever opens it. */
import type { ProcessInfo, Sandbox, Terminal } from "bothy";
import { useEffect, useRef, useState } from "preact/hooks";
import { Listening, nameOf } from "./network";
import { textOf } from "./server";
import { A, Button, Empty, go, Trouble, useRead, useTrouble } from "./ui";

const readerKey = "screen-reader";

/** What a program asks of its terminal is answered by the screen. A question in output that is shown again was answered before. */
const isAnswer = (text: string) => /^\x1b([\[\]P>?]|O[^A-D])/.test(text);

async function run(sandbox: Sandbox, pid: number, reader: boolean, at: HTMLElement, stop: AbortSignal, paused: () => boolean, say: (text: string) => void): Promise<void> {
  const [{ Terminal: XTerm }, { FitAddon }, { WebLinksAddon }, { Unicode11Addon }] = await Promise.all([
    import("@xterm/xterm"), import("@xterm/addon-fit"), import("@xterm/addon-web-links"), import("@xterm/addon-unicode11"), import("@xterm/xterm/css/xterm.css"), document.fonts.load('13px "JetBrains Mono"'), // the screen measures it once
  ]);
  if (stop.aborted) return;
  const screen = new XTerm({ allowProposedApi: true, cursorBlink: true, fontSize: 13, scrollback: 5000, fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"), screenReaderMode: reader, theme: { background: "#0c0e10" } });
  const fit = new FitAddon();
  screen.loadAddon(fit);
  screen.loadAddon(new WebLinksAddon());
  screen.loadAddon(new Unicode11Addon());
  screen.unicode.activeVersion = "11"; // emoji are two columns wide, as for the shell
  screen.open(at);
  fit.fit();
  let terminal: Terminal | undefined;
  const resized = new ResizeObserver(() => at.offsetHeight && fit.fit()); // it is hidden while the sandbox is paused
  resized.observe(at);
  stop.addEventListener("abort", () => (resized.disconnect(), screen.dispose(), void terminal?.close()));
  let unsent = ""; // what is typed while there is no connection
  let from = 0, drawn = 0, known = 0; // bytes of its output: received, on the screen, and printed before it was joined
  screen.onData((text) => {
    if (drawn < known && isAnswer(text)) return;
    if (terminal) void terminal.write(text).catch(() => undefined);
    else unsent += text;
  });
  screen.onResize(({ cols, rows }) => void terminal?.resize(cols, rows).catch(() => undefined));
  screen.focus();
  for (let failures = 0; !stop.aborted; ) {
    try {
      const found = (await sandbox.processes()).find((p) => p.pid === pid && p.terminal);
      if (!found?.running) return say(found?.exitCode === undefined ? "This terminal has ended." : `The shell ended with ${found.exitCode}.`);
      from = drawn = Math.max(from, found.outputStart);
      known = found.outputEnd;
      terminal = await sandbox.terminal({ cols: screen.cols, rows: screen.rows, process: pid, from, keep: true });
      if (stop.aborted) return void terminal.close();
      failures = 0;
      say("");
      if (unsent) await terminal.write(unsent);
      unsent = "";
      for await (const bytes of terminal) {
        from += bytes.length;
        screen.write(bytes, () => (drawn += bytes.length));
      }
      if (terminal.exitCode !== undefined) return say(`The shell ended with ${terminal.exitCode}.`);
      throw new Error("The terminal was closed.");
    } catch (error) {
      terminal = undefined;
      if (stop.aborted) return;
      if (!paused() && ++failures > 40) return say(textOf(error));
      say(paused() ? "The sandbox is paused. The terminal goes on when it is resumed." : "The connection is lost. Trying again…");
      await new Promise((r) => setTimeout(r, 1000));
    }
  }
}

function Screen({ sandbox, pid, paused, reader, ended }: { sandbox: Sandbox; pid: number; paused: boolean; reader: boolean; ended: () => void }) {
  const at = useRef<HTMLDivElement>(null);
  const [said, say] = useState("Opening the terminal…");
  const asleep = useRef(paused);
  asleep.current = paused;
  useEffect(() => {
    const stop = new AbortController();
    run(sandbox, pid, reader, at.current!, stop.signal, () => asleep.current, say).then(() => stop.signal.aborted || ended(), (error) => say(textOf(error)));
    return () => stop.abort();
  }, []);
  // The line stays when it is empty: the terminal would lose the focus if it were moved.
  return <div role="group" aria-label={`Terminal ${pid}`}><p role="status" class="waits">{said}</p><div class="shell" ref={at} /></div>;
}

export function TerminalTab({ sandbox, pid, paused }: { sandbox: Sandbox; pid: number; paused: boolean }) {
  const old = useRef<ProcessInfo[]>();
  const { value: processes, trouble, again } = useRead(async () => {
    if (!paused) old.current = await sandbox.processes({ all: true }); // asking would wake it
    return old.current;
  }, sandbox.id, 3);
  const open = processes?.filter((p) => p.running && p.tag === "kept");
  const [failed, attempt] = useTrouble();
  const [reader, setReader] = useState(localStorage.getItem(readerKey) === "on");
  const path = (to: number) => `sandboxes/${sandbox.id}/terminal/${to}`;
  const add = (first = false) => attempt(async () => {
    const made = await sandbox.terminal({ keep: true });
    await made.close(); // it is joined by the page that has its size
    await again();
    go(path(made.pid), first);
  });
  const end = (p: ProcessInfo) => attempt(async () => {
    if (!confirm(`End terminal ${p.pid} and what runs in it?`)) return;
    await (await sandbox.terminal({ process: p.pid })).close();
    const next = open!.find((o) => o.pid !== p.pid);
    if (p.pid === pid) go(next ? path(next.pid) : `sandboxes/${sandbox.id}/terminal/0`);
    await again();
  });
  const begun = useRef(false);
  useEffect(() => {
    if (!open || begun.current || !Number.isNaN(pid)) return;
    begun.current = true;
    if (open.length > 0) go(path(open[0]!.pid), true);
    else void add(true);
  }, [processes, pid]);
  const change = (on: boolean) => {
    localStorage.setItem(readerKey, on ? "on" : "off");
    setReader(on);
  };
  return (
    <>
      <Trouble text={failed || (paused ? "" : trouble)} />
      <div class="shells">
        <nav aria-label="Terminals">{open?.map((p) => (
          <span key={p.pid}><A to={path(p.pid)} current={p.pid === pid}>{nameOf(p)} {p.pid}</A><Button kind="quiet" title={`End terminal ${p.pid}`} label={`End terminal ${p.pid}`} work={() => end(p)}>×</Button></span>
        ))}<Button kind="quiet" title="New terminal" label="New terminal" work={() => add()}>+</Button></nav>
        <label><input type="checkbox" checked={reader} onChange={(e) => change(e.currentTarget.checked)} /> For a screen reader</label>
      </div>
      {processes && <Listening sandbox={sandbox} processes={processes} />}
      {pid > 0 && <Screen key={`${pid} ${reader}`} sandbox={sandbox} pid={pid} paused={paused} reader={reader} ended={() => void again()} />}
      {pid === 0 && open?.length === 0 && <Empty><p>No terminal is open.</p></Empty>}
      {Number.isNaN(pid) && !failed && <p role="status" class="waits">Opening a terminal…</p>}
    </>
  );
}
