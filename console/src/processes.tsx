/** What runs in a sandbox, as a table that stays true, with signals. */
import type { ProcessInfo, Sandbox, SignalName } from "bothy";
import { useState } from "preact/hooks";
import { Button, bytes, Command, Empty, Time, Trouble, useRead, useTrouble } from "./ui";

const signals: SignalName[] = ["SIGTERM", "SIGINT", "SIGKILL", "SIGHUP", "SIGSTOP", "SIGCONT", "SIGUSR1", "SIGUSR2"];

/** A shell's line is shown as the line alone. */
export const line = (p: ProcessInfo) => (p.command.length === 4 && p.command[1] === "-l" && p.command[2] === "-c" ? p.command[3]! : p.command.join(" "));

/** Children below their parents, indented. */
function family(all: ProcessInfo[]): [ProcessInfo, number][] {
  const known = new Set(all.map((p) => p.pid));
  const below = (parent: number | undefined, depth: number): [ProcessInfo, number][] =>
    all.filter((p) => (parent === undefined ? !known.has(p.parentPid ?? 0) : p.parentPid === parent && p.pid !== parent)).flatMap((p) => [[p, depth] as [ProcessInfo, number], ...below(p.pid, depth + 1)]);
  return below(undefined, 0);
}

interface Seen { at: number; list: ProcessInfo[]; before?: Seen }

/** How much of a processor one has used since it was seen before. */
function share(p: ProcessInfo, now: Seen): string {
  const was = now.before?.list.find((x) => x.pid === p.pid && x.running);
  if (!was || !now.before || p.cpuSeconds === undefined) return "";
  return `${Math.max(0, ((p.cpuSeconds - (was.cpuSeconds ?? 0)) / ((now.at - now.before.at) / 1000)) * 100).toFixed(0)} %`;
}

export function Processes({ sandbox, write }: { sandbox: Sandbox; write: boolean }) {
  const [before] = useState<{ last?: Seen }>({});
  const { value, trouble, again } = useRead(async () => {
    const now: Seen = { at: Date.now(), list: await sandbox.processes({ all: true }), before: before.last && { ...before.last, before: undefined } };
    return (before.last = now);
  }, sandbox.id, 2);
  const [failed, attempt] = useTrouble();
  const [signal, setSignal] = useState<SignalName>("SIGTERM");
  const send = (p: ProcessInfo) => attempt(async () => (await sandbox.process(p.pid).signal(signal), await again()));
  const running = value?.list.filter((p) => p.running) ?? [], ended = value?.list.filter((p) => !p.running) ?? [];
  return (
    <>
      <Trouble text={failed || trouble} />
      {!value && !trouble && <p class="waits" role="status">Reading the processes…</p>}
      {write && running.length > 0 && <div class="bar"><label>Signal to send <select value={signal} onChange={(e) => setSignal(e.currentTarget.value as SignalName)}>{signals.map((s) => <option key={s}>{s}</option>)}</select></label></div>}
      {value && running.length === 0 && <Empty><p>Nothing runs.</p><p>Start something with <Command>{`bothy exec ${sandbox.id} -- sleep 60`}</Command></p></Empty>}
      {running.length > 0 && (
        <div class="scrolls"><table><thead><tr><th class="number">PID</th><th>Command</th><th>User</th><th class="number">CPU</th><th class="number">CPU time</th><th class="number">Memory</th><th>Runs for</th><th><span class="hidden">Signal</span></th></tr></thead>
          <tbody>{family(running).map(([p, depth]) => (
            <tr key={p.pid}><td class="number">{p.pid}</td><td style={{ paddingLeft: `${depth * 1.2}rem` }}><code>{line(p)}</code>{p.terminal && <> <span class="label">terminal</span></>}</td><td>{p.user}</td>
              <td class="number">{share(p, value!)}</td><td class="number">{p.cpuSeconds === undefined ? "" : `${p.cpuSeconds.toFixed(1)} s`}</td><td class="number">{p.memoryBytes === undefined ? "" : bytes(p.memoryBytes)}</td><td><Time at={p.startedAt} /></td>
              <td>{write && <Button kind={signal === "SIGKILL" ? "quiet danger" : "quiet"} work={() => send(p)}>{signal}</Button>}</td></tr>
          ))}</tbody></table></div>
      )}
      {ended.length > 0 && (
        <><h2>Ended</h2>
          <table><thead><tr><th class="number">PID</th><th>Command</th><th>User</th><th>End</th></tr></thead>
            <tbody>{ended.map((p) => <tr key={p.pid}><td class="number">{p.pid}</td><td><code>{line(p)}</code></td><td>{p.user}</td><td class={p.exitCode ? "no once" : "once"}>{p.oomKilled ? "out of memory" : p.timedOut ? "timed out" : `exit code ${p.exitCode}`}</td></tr>)}</tbody></table></>
      )}
    </>
  );
}
