/** Who did what, and the proof that it was written so. */
import type { AuditCheck, AuditRecord } from "bothy";
import { useEffect, useState } from "preact/hooks";
import { bothy, type Login } from "./server";
import { A, Button, Empty, Moment, Trouble, useQuery, useTrouble } from "./ui";

const page = 200;

/** A day and time of the visitor's clock, as its field writes it. */
const time = (text: string) => (text && !Number.isNaN(+new Date(text)) ? new Date(text) : undefined);

export function Audit({ login }: { login: Login }) {
  const [action, setAction] = useQuery("action");
  const [token, setToken] = useQuery("key");
  const [sandbox, setSandbox] = useQuery("sandbox");
  const [project, setProject] = useQuery("project");
  const [since, setSince] = useQuery("since");
  const [until, setUntil] = useQuery("until");
  const [refused, setRefused] = useQuery("refused");
  const [list, setList] = useState<AuditRecord[]>();
  const [next, setNext] = useState<string>();
  const [check, setCheck] = useState<AuditCheck>();
  const [failed, attempt] = useTrouble();
  const filters = { action: action || undefined, token: token || undefined, sandbox: sandbox || undefined, project: project || undefined, since: time(since), until: time(until), refused: refused ? true : undefined };
  const read = (cursor?: string) => attempt(async () => {
    const p = await bothy.audit({ ...filters, limit: page, cursor });
    setList((old) => (cursor ? [...(old ?? []), ...p.items] : p.items));
    setNext(p.nextCursor);
  });
  useEffect(() => void read(), [action, token, sandbox, project, since, until, refused]);
  const field = (label: string, value: string, set: (v: string) => void, type = "text") => <label>{label} <input type={type} value={value} onChange={(e) => set(e.currentTarget.value.trim())} /></label>;
  return (
    <main>
      <div class="bar"><h1>Audit</h1>
        {login.operator && <Button work={() => attempt(async () => setCheck(await bothy.checkAudit()))} title="Check that no record was changed, removed or added between others">Verify</Button>}</div>
      <form class="create" onSubmit={(e) => (e.preventDefault(), void read())}>
        {field("Action", action, setAction)}{field("Key, by its id", token, setToken)}{field("Sandbox", sandbox, setSandbox)}{login.operator && field("Project", project, setProject)}
        {field("From", since, setSince, "datetime-local")}{field("Until", until, setUntil, "datetime-local")}
        <label class="check"><input type="checkbox" checked={!!refused} onChange={(e) => setRefused(e.currentTarget.checked ? "yes" : "")} /> Refused only</label>
      </form>
      <Trouble text={failed} />
      {check && <p role="status" class={check.ok ? "note" : "lost"}>{check.ok ? `All ${check.records} records are unaltered.` : `Record ${check.broken} was altered: ${check.detail}`}</p>}
      {!list && !failed && <p class="waits" role="status">Reading the records…</p>}
      {list?.length === 0 && <Empty><p>No record matches.</p></Empty>}
      {list && list.length > 0 && (
        <table><thead><tr><th>Time</th><th>Who</th>{login.operator && <th>Project</th>}<th>Action</th><th>Sandbox</th><th>What</th><th>From</th><th class="number">Status</th></tr></thead>
          <tbody>{list.map((r) => <tr key={r.id}><td><Moment at={r.time} /></td><td class="once" title={r.tokenId}>{r.tokenName || r.tokenId || "nobody known"}</td>{login.operator && <td>{r.project}</td>}<td class="once">{r.action}{r.count && r.count > 1 ? ` × ${r.count}` : ""}</td>
            <td>{r.sandboxId && <A to={`sandboxes/${r.sandboxId}`}>{r.sandboxId}</A>}</td><td>{r.command ? <code>{r.command}</code> : r.object}</td><td>{r.remote}</td><td class={r.status >= 400 ? "number no" : "number"} title={r.code}>{r.status}</td></tr>)}</tbody></table>
      )}
      {next && <p><Button work={() => read(next)}>More</Button></p>}
    </main>
  );
}
