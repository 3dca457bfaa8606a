/** A terminal, which joins its process again when the connection broke. */
import type { Sandbox, Terminal } from "bothy";
import { useEffect, useRef, useState } from "preact/hooks";
import { textOf } from "./server";

async function run(sandbox: Sandbox, at: HTMLElement, stop: AbortSignal, paused: () => boolean, say: (text: string) => void): Promise<void> {
  const [{ Terminal: XTerm }, { FitAddon }, { WebLinksAddon }] = await Promise.all([
    import("@xterm/xterm"), import("@xterm/addon-fit"), import("@xterm/addon-web-links"), import("@xterm/xterm/css/xterm.css"),
  ]);
  if (stop.aborted) return;
  const screen = new XTerm({ cursorBlink: true, fontSize: 13.5, fontFamily: 'ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", "DejaVu Sans Mono", monospace', screenReaderMode: true, theme: { background: "#0c0e10" } });
  const fit = new FitAddon();
  screen.loadAddon(fit);
  screen.loadAddon(new WebLinksAddon());
  screen.open(at);
  fit.fit();
  let terminal: Terminal | undefined;
  const resized = new ResizeObserver(() => at.offsetHeight && fit.fit()); // it is hidden while the sandbox is paused
  resized.observe(at);
  stop.addEventListener("abort", () => (resized.disconnect(), screen.dispose(), void terminal?.close()));
  let unsent = ""; // what is typed while there is no connection
  screen.onData((text) => {
    if (terminal) void terminal.write(text).catch(() => undefined);
    else unsent += text;
  });
  screen.onResize(({ cols, rows }) => void terminal?.resize(cols, rows).catch(() => undefined));
  screen.focus();
  let from = 0;
  for (let pid: number | undefined, failures = 0; !stop.aborted; ) {
    try {
      terminal = await sandbox.terminal({ cols: screen.cols, rows: screen.rows, ...(pid ? { process: pid, from } : {}) });
      pid = terminal.pid;
      failures = 0;
      say("");
      if (unsent) await terminal.write(unsent);
      unsent = "";
      for await (const bytes of terminal) {
        from += bytes.length;
        screen.write(bytes);
      }
      return say(terminal.exitCode === undefined ? "The terminal was closed." : `The shell ended with ${terminal.exitCode}. Open this page again for another.`);
    } catch (error) {
      terminal = undefined;
      if (!paused() && ++failures > 40) return say(textOf(error));
      say(paused() ? "The sandbox is paused. The terminal goes on when it is resumed." : "The connection is lost. Trying again…");
      await new Promise((r) => setTimeout(r, 1000));
    }
  }
}

export function TerminalTab({ sandbox, paused }: { sandbox: Sandbox; paused: boolean }) {
  const at = useRef<HTMLDivElement>(null);
  const [said, say] = useState("Opening a terminal…");
  const asleep = useRef(paused);
  asleep.current = paused;
  useEffect(() => {
    const stop = new AbortController();
    run(sandbox, at.current!, stop.signal, () => asleep.current, say).catch((error) => say(textOf(error)));
    return () => stop.abort();
  }, [sandbox.id]);
  // The line stays when it is empty: the terminal would lose the focus if it were moved.
  return <><p role="status" class="waits">{said}</p><div class="shell" ref={at} /></>;
}
