/** Templates, usage, keys, and who did what. */
import type { AuditCheck, BuildEvent, Token } from "bothy";
import { useState } from "preact/hooks";
import { bothy, type Login, may } from "./server";
import { Button, bytes, save, Time, Trouble, useRead, useTrouble } from "./ui";

export function Templates({ login }: { login: Login }) {
  const { value, trouble, again } = useRead(() => bothy.templates.list(), "");
  const [failed, attempt] = useTrouble();
  const [name, setName] = useState("");
  const [image, setImage] = useState("");
  const [steps, setSteps] = useState<BuildEvent[]>([]);
  const build = () => attempt(async () => {
    setSteps([]);
    await bothy.templates.build({ name, image: image || undefined }, { onProgress: (e) => setSteps((old) => [...old.filter((o) => o.step !== e.step || o.message !== e.message), e]) });
    await again();
  });
  return (
    <main>
      <div class="bar"><h1>Templates</h1>
        {may(login, "admin") && <>
          <label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
          <label>Image <input value={image} placeholder="debian:12, or none for a built-in one" onInput={(e) => setImage(e.currentTarget.value)} /></label>
          <Button disabled={!name} work={build}>Import</Button></>}</div>
      <Trouble text={failed || trouble} />
      {steps.length > 0 && <pre tabIndex={0} role="log" aria-label="The build">{steps.map((e) => [e.step, e.message, e.percent !== undefined && `${e.percent} %`].filter(Boolean).join(": ")).join("\n")}</pre>}
      {value?.length === 0 && <p>There is no template. Build one with <code>bothy template build python-3.12</code>.</p>}
      <table><thead><tr><th>Name</th><th>Description</th><th>Digest</th><th>Size</th><th>Packages</th></tr></thead>
        <tbody>{value?.map((t) => <tr key={t.digest + t.name}><td>{t.name}</td><td>{t.description}</td><td><code title={t.digest}>{t.digest.slice(0, 19)}</code></td><td>{bytes(t.sizeBytes)}</td>
          <td>{t.packages && Object.keys(t.packages).length > 0 ? <details><summary>{Object.keys(t.packages).length}</summary>{Object.entries(t.packages).map(([k, v]) => `${k} ${v}`).join(", ")}</details> : 0}</td></tr>)}</tbody></table>
    </main>
  );
}

const cell = (v: unknown) => {
  const text = String(v ?? "");
  // A spreadsheet takes what begins so for a formula.
  return `"${(/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text).replaceAll('"', '""')}"`;
};

export function Usage() {
  const [by, setBy] = useState("day");
  const { value, trouble } = useRead(() => bothy.usage({ groupBy: by }), by);
  const limits = useRead(() => bothy.limits(), "");
  const nameOf = (i: NonNullable<typeof value>["items"][number]) => i.day ?? i.project ?? i.template ?? i.sandbox ?? "";
  const top = Math.max(...(value?.items.map((i) => i.cost) ?? []), 1e-9);
  const csv = async () => save("usage.csv", [[by, "cost", "vcpu_seconds", "cpu_seconds", "memory_mb_seconds", "egress_bytes"].join(","),
    ...value!.items.map((i) => [nameOf(i), i.cost, i.vcpuSeconds, i.cpuSeconds, i.memoryMbSeconds, i.egressBytes].map(cell).join(","))].join("\n") + "\n");
  return (
    <main>
      <div class="bar"><h1>Usage</h1>
        <label>By <select value={by} onChange={(e) => setBy(e.currentTarget.value)}><option>day</option><option>project</option><option>template</option><option>sandbox</option></select></label>
        <Button disabled={!value} work={csv}>CSV</Button></div>
      <Trouble text={trouble || limits.trouble} />
      {limits.value && <p>Plan {limits.value.plan}: {limits.value.sandboxes.used} sandboxes of {limits.value.sandboxes.limit ?? "any number"}, {limits.value.snapshots.usedMb} MB of snapshots.</p>}
      {value && <p>In all {value.total.cost.toFixed(4)} {value.currency}.</p>}
      <table><thead><tr><th>{by}</th><th>Cost</th><th>CPU time</th><th><span class="hidden">Plot</span></th></tr></thead>
        <tbody>{value?.items.map((i) => <tr key={nameOf(i)}><td>{nameOf(i)}</td><td>{i.cost.toFixed(4)}</td><td>{Math.round(i.cpuSeconds)} s</td><td class="wide"><div class="share" style={{ width: `${(i.cost / top) * 100}%` }} /></td></tr>)}</tbody></table>
    </main>
  );
}

export function Keys() {
  const { value, trouble, again } = useRead(() => bothy.tokens.list(), "");
  const [failed, attempt] = useTrouble();
  const [made, setMade] = useState<Token>();
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState("sandboxes:read,sandboxes:write,templates:read");
  const make = () => attempt(async () => {
    setMade(await bothy.tokens.create({ name, scopes: scopes.split(",") as Token["scopes"] }));
    await again();
  });
  return (
    <main><h1>Keys</h1><Trouble text={failed || trouble} />
      <div class="bar">
        <label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
        <label>May <select value={scopes} onChange={(e) => setScopes(e.currentTarget.value)}>
          <option value="sandboxes:read,templates:read">read</option><option value="sandboxes:read,sandboxes:write,templates:read">use sandboxes</option><option value="admin">everything</option></select></label>
        <Button work={make}>Make a key</Button>
      </div>
      {made?.key && <p role="status">The key, shown this once: <code>{made.key}</code> <button type="button" onClick={() => setMade(undefined)}>Hide</button></p>}
      <table><thead><tr><th>Name</th><th>Id</th><th>Project</th><th>Scopes</th><th>Last used</th><th><span class="hidden">Act</span></th></tr></thead>
        <tbody>{value?.map((t) => <tr key={t.id}><td>{t.name}</td><td><code>{t.id}</code></td><td>{t.project}</td><td>{t.scopes.join(", ")}</td><td><Time at={t.lastUsedAt} /></td>
          <td><Button kind="danger" work={() => attempt(async () => confirm(`Revoke ${t.name || t.id}?`) && (await bothy.tokens.delete(t.id), await again()))}>Revoke</Button></td></tr>)}</tbody></table>
    </main>
  );
}

export function Audit({ login }: { login: Login }) {
  const [action, setAction] = useState("");
  const [refused, setRefused] = useState(false);
  const { value, trouble } = useRead(async () => (await bothy.audit({ action: action || undefined, refused: refused || undefined, limit: 200 })).items, `${action} ${refused}`);
  const [check, setCheck] = useState<AuditCheck>();
  const [failed, attempt] = useTrouble();
  return (
    <main>
      <div class="bar"><h1>Audit</h1>
        <label>Action <input value={action} onChange={(e) => setAction(e.currentTarget.value)} /></label>
        <label><input type="checkbox" checked={refused} onChange={(e) => setRefused(e.currentTarget.checked)} /> Refused only</label>
        {login.operator && <Button work={() => attempt(async () => setCheck(await bothy.checkAudit()))}>Verify</Button>}</div>
      <Trouble text={failed || trouble} />
      {check && <p role="status">{check.ok ? `All ${check.records} records are as they were written.` : `Record ${check.broken} is not as it was written: ${check.detail}`}</p>}
      <table><thead><tr><th>Time</th><th>Who</th><th>Action</th><th>Sandbox</th><th>What</th><th>Status</th></tr></thead>
        <tbody>{value?.map((r) => <tr key={r.id}><td title={new Date(r.time).toISOString()}>{new Date(r.time).toLocaleString()}</td><td>{r.tokenName || r.tokenId}</td><td>{r.action}</td><td>{r.sandboxId}</td><td>{r.command ?? r.object}</td><td>{r.status}</td></tr>)}</tbody></table>
    </main>
  );
}
