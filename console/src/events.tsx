/** What happened to the sandboxes of the project, as it happens. */
import type { BothyEvent } from "bothy";
import { useState } from "preact/hooks";
import { bothy } from "./server";
import { useStream } from "./stream";
import { A, Empty, Moment, span, useQuery } from "./ui";

/** As many of the newest are shown. */
const shown = 500;

/** What events are called where people read them, and how they are drawn. */
const said: Record<string, [string, string?]> = {
  "sandbox.created": ["Created"], "sandbox.updated": ["Changed"], "sandbox.paused": ["Paused", "paused"], "sandbox.resumed": ["Resumed"], "sandbox.forked": ["Forked"],
  "sandbox.rolled_back": ["Rolled back"], "sandbox.restarted": ["Started again"], "sandbox.unattached": ["Not taken over yet", "paused"], "sandbox.host_lost": ["Host lost"], "sandbox.checkpoint_failed": ["No checkpoint"], "sandbox.not_resumed": ["Not resumed yet", "paused"], "sandbox.moved": ["Moved to another host"], "sandbox.move_failed": ["Not moved"], "sandbox.conflict": ["Changed by another server"], "sandbox.ended": ["Ended", "ended"], "sandbox.oom_killed": ["Out of memory", "oom"], "sandbox.unhealthy": ["Something is wrong", "oom"],
  "snapshot.created": ["Snapshot taken"], "snapshot.deleted": ["Snapshot deleted"], "snapshot.stored": ["Snapshot in object storage"], "budget.warning": ["Budget nearly used", "budget"], "budget.exceeded": ["Budget used up", "budget"], "engine.preparing": ["An engine gets ready"],
};

export const nameOfEvent = (e: BothyEvent) => said[e.type]?.[0] ?? e.type;

/** The events of one sandbox, the oldest first. */
export function Life({ events }: { events: BothyEvent[] }) {
  const after = (i: number) => (i > 0 ? `after ${span((+events[i]!.time - +events[i - 1]!.time) / 1000)}` : "");
  return (
    <ol class="life">{events.map((e, i) => {
      const [name, kind] = said[e.type] ?? [e.type];
      return <li key={e.id} class={kind}><span class="gap">{after(i)}</span><Moment at={e.time} /> <b>{name}</b> <About event={e} /></li>;
    })}</ol>
  );
}

/** Why something happened, and what else is known about it. */
function About({ event }: { event: BothyEvent }) {
  const { reason, detail, ...more } = event.data ?? {};
  const rest = Object.entries(more).filter(([, v]) => v).map(([k, v]) => `${k.replaceAll("_", " ")} ${v}`);
  return <>{reason && <i>{reason.replaceAll("_", " ")}</i>} <small>{[detail, ...rest].filter(Boolean).join(", ")}</small></>;
}

export function Events() {
  const [list, setList] = useState<BothyEvent[]>();
  const [type, setType] = useQuery("type");
  const connected = useStream(async (signal, stands) => {
    // The newest are the last of the list, which begins with the oldest that is kept.
    const last = await bothy.lastEvent({ signal });
    const past: BothyEvent[] = [];
    for await (const e of bothy.events({ follow: false, since: Math.max(0, last - 20 * shown), signal })) past.push(e);
    setList(past.reverse().slice(0, shown));
    stands();
    for await (const e of bothy.events({ since: Math.max(last, past[0]?.id ?? 0), rejoin: false, signal })) setList((old) => [e, ...(old ?? [])].slice(0, shown));
  }, "");
  const types = [...new Set([...Object.keys(said), ...(list ?? []).map((e) => e.type)])].sort();
  const matching = list?.filter((e) => !type || e.type === type);
  return (
    <main>
      <div class="bar"><h1>Events</h1>
        <label>Type <select value={type} onChange={(e) => setType(e.currentTarget.value)}><option value="">all</option>{types.map((t) => <option key={t} value={t}>{said[t]?.[0] ?? t}</option>)}</select></label></div>
      {!connected && <p class="lost" role="status">The connection to the server is lost. Trying again…</p>}
      {!list && connected && <p class="waits" role="status">Reading the events…</p>}
      {matching?.length === 0 && <Empty><p>{list!.length ? `None of the newest ${list!.length} events is of this type.` : "Nothing has happened yet. What happens to sandboxes appears here."}</p></Empty>}
      {matching && matching.length > 0 && (
        <table><thead><tr><th>Time</th><th>Event</th><th>Sandbox</th><th>Details</th></tr></thead>
          <tbody>{matching.map((e) => <tr key={e.id}><td><Moment at={e.time} /></td><td class="once"><b>{nameOfEvent(e)}</b></td><td>{e.sandboxId && <A to={`sandboxes/${e.sandboxId}`}>{e.sandboxId}</A>}</td><td><About event={e} /></td></tr>)}</tbody></table>
      )}
    </main>
  );
}
