/** Webhooks: where the events of the project are sent, and how that goes. */
import type { Webhook } from "bothy";
import { useState } from "preact/hooks";
import { bothy } from "./server";
import { Button, Command, Empty, Time, Trouble, useRead, useTrouble } from "./ui";

/** How deliveries go, in a line. */
function State({ hook: h }: { hook: Webhook }) {
  if (!h.enabled) return <span class="no">disabled{h.disabledReason && `: ${h.disabledReason}`}</span>;
  if (h.failingSince) return <span class="no">fails for <Time at={h.failingSince} />{h.lastError && `: ${h.lastError}`}{h.nextAttemptAt && <>; the next attempt in <Time at={h.nextAttemptAt} left /></>}</span>;
  return h.deliveredAt ? <span class="yes">delivered <Time at={h.deliveredAt} /> ago</span> : <>nothing sent yet</>;
}

export function Webhooks() {
  const { value, trouble, again } = useRead(() => bothy.webhooks.list(), "", 5);
  const [failed, attempt] = useTrouble();
  const [url, setUrl] = useState("");
  const [name, setName] = useState("");
  const [events, setEvents] = useState("");
  const [said, setSaid] = useState("");
  const [made, setMade] = useState<Webhook>();
  const act = (work: () => Promise<unknown>) => attempt(async () => (await work(), await again()));
  const make = () => act(async () => {
    setMade(await bothy.webhooks.create(url, { name: name || undefined, events: events.split(/[\s,]+/).filter(Boolean) }));
    setUrl("");
    setName("");
  });
  const test = (h: Webhook) => act(async () => {
    setSaid("");
    const { status, error, milliseconds } = await bothy.webhooks.test(h.id);
    setSaid(`${h.name || h.url}: ${error ?? `answered ${status}`}, after ${Math.round(milliseconds)} ms.`);
  });
  return (
    <main><div class="bar"><h1>Webhooks {value && <small>{value.length}</small>}</h1></div>
      <Trouble text={failed || trouble} />
      <form class="create" onSubmit={(e) => (e.preventDefault(), void make())}>
        <label>URL <input type="url" value={url} onInput={(e) => setUrl(e.currentTarget.value)} /></label>
        <label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
        <label>Only these types of events <input value={events} placeholder="sandbox.ended, snapshot.created" onInput={(e) => setEvents(e.currentTarget.value)} /></label>
        <div class="whole"><Button kind="main" work={make}>Create webhook</Button></div>
      </form>
      {made?.secret && <p role="status" class="note">Its requests are signed with this secret, shown this once: <Command>{made.secret}</Command> <button type="button" onClick={() => setMade(undefined)}>Hide</button></p>}
      {said && <p role="status" class="note">{said}</p>}
      {value?.length === 0 && <Empty><p>No webhooks. A webhook sends the project's events to a URL, signed.</p><p>Create one above, or with <Command>bothy webhook create https://hooks.example.org/bothy</Command></p></Empty>}
      {value && value.length > 0 && (
        <table><thead><tr><th>Name</th><th>URL</th><th>Events</th><th>State</th><th class="number">Refused</th><th><span class="hidden">Act</span></th></tr></thead>
          <tbody>{value.map((h) => <tr key={h.id}><td><b>{h.name || h.id}</b></td><td>{h.url}</td><td>{h.events?.join(", ") ?? "all"}</td><td><State hook={h} /></td><td class="number">{h.refused ?? 0}</td>
            <td><Button work={() => test(h)}>Test</Button> <Button work={() => act(() => bothy.webhooks.update(h.id, { enabled: !h.enabled }))}>{h.enabled ? "Disable" : "Enable"}</Button>{" "}
              <Button kind="quiet danger" work={() => act(async () => confirm(`Delete the webhook to ${h.url}? What was not delivered is lost.`) && bothy.webhooks.delete(h.id))}>Delete</Button></td></tr>)}</tbody></table>
      )}
    </main>
  );
}
