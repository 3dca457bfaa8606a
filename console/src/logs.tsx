/** The output of a sandbox's commands, as they write it. */
import type { ProcessInfo, Sandbox } from "bothy";
import { useEffect, useState } from "preact/hooks";
import { Empty, Trouble, useTrouble } from "./ui";

/** A browser has few connections to a server: more commands than these wait for one to end. */
const streams = 3;
const kept = 200_000;

/** Tells of every process, of new ones within a second or so. */
async function* started(sandbox: Sandbox, signal: AbortSignal): AsyncGenerator<ProcessInfo> {
  for (const seen = new Set<number>(); !signal.aborted; ) {
    for (const p of await sandbox.processes({ signal })) {
      if (seen.has(p.pid)) continue;
      seen.add(p.pid);
      yield p;
    }
    await new Promise((r) => setTimeout(r, 1000));
  }
}

async function follow(sandbox: Sandbox, signal: AbortSignal, show: (p: ProcessInfo, text: string) => void): Promise<void> {
  const queue = started(sandbox, signal);
  const some = async () => {
    for (let next = await queue.next(); !next.done; next = await queue.next()) {
      const p = next.value;
      const decoder = new TextDecoder();
      show(p, "");
      for await (const e of sandbox.process(p.pid).output(p.outputStart, { signal })) if (!e.isFinal) show(p, decoder.decode(e.bytes, { stream: true }));
    }
  };
  await Promise.all(Array.from({ length: streams }, some));
}

interface Printed { command: string; text: string }

export function Logs({ sandbox }: { sandbox: Sandbox }) {
  const [printed, setPrinted] = useState(new Map<number, Printed>());
  const [trouble, attempt] = useTrouble();
  useEffect(() => {
    setPrinted(new Map());
    const stop = new AbortController();
    const show = (p: ProcessInfo, text: string) =>
      setPrinted((old) => new Map(old).set(p.pid, { command: p.command.join(" "), text: ((old.get(p.pid)?.text ?? "") + text).slice(-kept) }));
    void attempt(() => follow(sandbox, stop.signal, show).catch((error) => {
      if (!stop.signal.aborted) throw error;
    }));
    return () => stop.abort();
  }, [sandbox.id]);
  return (
    <>
      <Trouble text={trouble} />
      {printed.size === 0 && <Empty><p>Nothing was printed yet. What commands print appears here.</p></Empty>}
      {[...printed].map(([pid, { command, text }]) => <section key={pid}><h2><code>{command}</code> <small>{pid}</small></h2><pre tabIndex={0} role="log" aria-label={`Output of ${pid}`}>{text}</pre></section>)}
    </>
  );
}
