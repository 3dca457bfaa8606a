/** Keys: made, and revoked. */
import type { Token } from "bothy";
import { useState } from "preact/hooks";
import { bothy, type Login } from "./server";
import { Button, Command, Moment, Time, Trouble, useRead, useTrouble } from "./ui";

const day = 86_400_000;
const sets: Record<string, string> = {
  "read": "sandboxes:read,templates:read", "use sandboxes": "sandboxes:read,sandboxes:write,templates:read",
  "use sandboxes, build templates": "sandboxes:read,sandboxes:write,templates:read,templates:write", "everything": "admin",
};

export function Keys({ login }: { login: Login }) {
  const { value, trouble, again } = useRead(() => bothy.tokens.list(), "");
  const projects = useRead(() => (login.operator ? bothy.projects.list() : Promise.resolve([])), "");
  const [failed, attempt] = useTrouble();
  const [made, setMade] = useState<Token>();
  const [name, setName] = useState("");
  const [project, setProject] = useState("");
  const [scopes, setScopes] = useState(sets["use sandboxes"]!);
  const [days, setDays] = useState("");
  const make = () => attempt(async () => {
    const expiresAt = days ? new Date(Date.now() + Number(days) * day) : undefined;
    setMade(await bothy.tokens.create({ name, project: project || undefined, scopes: scopes.split(",") as Token["scopes"], expiresAt }));
    setName("");
    await again();
  });
  return (
    <main><div class="bar"><h1>Keys {value && <small>{value.length}</small>}</h1></div>
      <Trouble text={failed || trouble} />
      <form class="create" onSubmit={(e) => (e.preventDefault(), void make())}>
        <label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
        <label>May <select value={scopes} onChange={(e) => setScopes(e.currentTarget.value)}>{Object.entries(sets).map(([label, s]) => <option key={s} value={s}>{label}</option>)}</select></label>
        {login.operator && <label>Project <select value={project} onChange={(e) => setProject(e.currentTarget.value)}><option value="">{login.project}</option>{projects.value?.filter((p) => p.id !== login.project).map((p) => <option key={p.id}>{p.id}</option>)}</select></label>}
        <label>Expires <select value={days} onChange={(e) => setDays(e.currentTarget.value)}><option value="">never</option><option value="1">in a day</option><option value="7">in 7 days</option><option value="90">in 90 days</option><option value="365">in a year</option></select></label>
        <div class="whole"><Button kind="main" work={make}>Make a key</Button></div>
      </form>
      {made?.key && <p role="status" class="note">The key, shown this once: <Command>{made.key}</Command> <button type="button" onClick={() => setMade(undefined)}>Hide</button></p>}
      <table><thead><tr><th>Name</th><th>Id</th><th>Project</th><th>Scopes</th><th>Created</th><th>Last used</th><th>Expires</th><th><span class="hidden">Act</span></th></tr></thead>
        <tbody>{value?.map((t) => <tr key={t.id}><td><b>{t.name || "–"}</b></td><td><code>{t.id}</code></td><td>{t.project}</td><td>{t.scopes.join(", ")}</td><td><Moment at={t.createdAt} /></td><td>{t.lastUsedAt ? <><Time at={t.lastUsedAt} /> ago</> : "never"}</td><td>{t.expiresAt ? <Moment at={t.expiresAt} /> : "never"}</td>
          <td><Button kind="quiet danger" work={() => attempt(async () => confirm(`Revoke ${t.name || t.id}? Requests with it are refused immediately.`) && (await bothy.tokens.delete(t.id), await again()))}>Revoke</Button></td></tr>)}</tbody></table>
    </main>
  );
}
