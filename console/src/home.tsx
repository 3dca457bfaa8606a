/** What goes on, on one page: what runs, how fast it starts, what was refused and failed, what it costs; and the first steps where nothing was made yet. */
import type { NetworkDecision, SandboxInfo } from "bothy";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { bothy, type Login, may } from "./server";
import { A, Button, Command, Empty, Moment, Trouble, useRead, useTrouble } from "./ui";

const day = 86_400_000, minutes = 10, watched = 10;

interface Refusal { of: SandboxInfo; decision: NetworkDecision }

async function read() {
  const infos = async (state: SandboxInfo["state"][], limit: number) => (await bothy.sandboxes.list({ state, limit })).items;
  const [live, ended, failed] = await Promise.all([bothy.sandboxes.list({ live: true, limit: 1000 }), infos(["stopped"], 200), infos(["failed"], 5)]);
  const recent = live.items.filter((s) => s.info.state === "running").slice(0, watched);
  // One that ends meanwhile has no log to show.
  const logs = await Promise.all(recent.map(async (s) => (await s.networkLog({ since: new Date(Date.now() - 3_600_000) }).catch(() => [])).filter((d) => !d.allowed).map((decision): Refusal => ({ of: s.info, decision }))));
  return { live: live.items.map((s) => s.info), more: !!live.nextCursor, ended: ended.map((s) => s.info), failed: failed.map((s) => s.info), refused: logs.flat().sort((a, b) => +b.decision.time - +a.decision.time) };
}

const duration = (ms: number) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** How long the newest starts took, sorted; without what was resumed, which was started for another time. */
const starts = (list: SandboxInfo[]) => list.filter((s) => s.startedAt && !s.resumed).map((s) => +s.startedAt! - +s.createdAt).sort((a, b) => a - b);
const at = (sorted: number[], share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

function Figure({ name, value, note, to }: { name: string; value: ComponentChildren; note?: ComponentChildren; to?: string }) {
  return <div class="figure"><dt>{to ? <A to={to}>{name}</A> : name}</dt><dd><b>{value}</b> {note && <small>{note}</small>}</dd></div>;
}

export function Home({ login }: { login: Login }) {
  const { value: v, trouble } = useRead(read, "", 10);
  const usage = useRead(() => bothy.usage({ groupBy: "day", from: new Date(Math.floor(Date.now() / day) * day) }), "", 60).value;
  const made = v && [...v.live, ...v.ended, ...v.failed];
  const count = (state: string) => `${v!.live.filter((s) => s.state === state).length}${v!.more ? "+" : ""}`;
  const times = made ? starts(made) : [];
  const cost = usage?.items.reduce((n, i) => n + i.cost, 0);
  return (
    <main>
      <div class="bar"><h1>Home</h1></div>
      <Trouble text={trouble} />
      {!v && !trouble && <p class="waits" role="status">Reading what goes on…</p>}
      {made?.length === 0 && <First login={login} />}
      {v && made && made.length > 0 && (
        <>
          <dl class="figures">
            <Figure name="Running" to="sandboxes?state=running" value={count("running")} note={`${count("paused")} paused`} />
            <Figure name="Starts a minute" value={(made.filter((s) => Date.now() - +s.createdAt < minutes * 60_000).length / minutes).toFixed(1)} note={`over ${minutes} minutes`} />
            <Figure name="Median start" value={times.length ? duration(at(times, 0.5)!) : "–"} note={times.length > 0 && `95 % within ${duration(at(times, 0.95)!)}`} />
            <Figure name="Refused connections" value={v.refused.length} note="last hour" />
            <Figure name="Cost today" to="usage" value={cost === undefined ? "–" : cost.toFixed(cost < 1 ? 4 : 2)} note={usage?.currency} />
          </dl>
          <div class="cards">
            <section class="card"><h2>Last failures</h2>
              {v.failed.length === 0 ? <Empty><p>No sandbox has failed.</p></Empty> : <ul class="told">{v.failed.map((s) => <li key={s.id}><Moment at={s.ended?.at} /> <A to={`sandboxes/${s.id}`}>{s.name ?? s.id}</A> <span class="no">{s.ended?.detail || s.ended?.reason.replaceAll("_", " ")}</span></li>)}</ul>}
            </section>
            <section class="card"><h2>Refused connections</h2>
              {v.refused.length === 0 ? <Empty><p>Nothing was refused in the last hour.</p></Empty> : <ul class="told">{v.refused.slice(0, 5).map((r, i) => <li key={i}><Moment at={r.decision.time} /> <A to={`sandboxes/${r.of.id}/network`}>{r.of.name ?? r.of.id}</A> to <b>{r.decision.name ?? r.decision.address}:{r.decision.port}</b> <small>{r.decision.reason}</small></li>)}</ul>}
              <p class="soft">Of the {watched} newest running sandboxes.</p>
            </section>
          </div>
        </>
      )}
    </main>
  );
}

/** The first steps, with this server's address and a key that is made here. */
function First({ login }: { login: Login }) {
  const [key, setKey] = useState("");
  const [trouble, attempt] = useTrouble();
  const make = () => attempt(async () => setKey((await bothy.tokens.create({ name: "first steps", scopes: ["sandboxes:read", "sandboxes:write", "templates:read"] })).key!));
  return (
    <section class="card first"><h2>Three steps to the first sandbox</h2>
      <Trouble text={trouble} />
      <ol>
        <li><p>Say where this server is, and who you are.</p>
          <p><Command>{`export BOTHY_URL=${location.origin} BOTHY_API_KEY=${key || "KEY"}`}</Command></p>
          {may(login, "admin") && !key && <p><Button kind="main" work={make}>Create a key</Button></p>}
          {key && <p class="note" role="status">The key is in the line above. It is shown this once.</p>}</li>
        <li><p>Run something in a machine of its own.</p><p><Command>bothy run -- python3 -c 'print(6 * 7)'</Command></p></li>
        <li><p>Keep one, and look at it here.</p><p><Command>bothy create --name first</Command></p></li>
      </ol>
    </section>
  );
}
