/** Templates, usage, keys, and who did what. */
import type { AuditCheck, Build, BuildEvent, Token } from "bothy";
import { useEffect, useRef, useState } from "preact/hooks";
import { bothy, type Login, may } from "./server";
import { Button, bytes, Command, save, Time, Trouble, useRead, useTrouble } from "./ui";

/** The files of a chosen folder by their paths in it. */
const filesOf = (list: FileList): Record<string, Blob> => Object.fromEntries([...list].map((f) => [f.webkitRelativePath.replace(/^[^/]*\//, "") || f.name, f]));

/** Builds from a Dockerfile, with what COPY takes. The server goes on when the page is left. */
function DockerfileForm({ built }: { built: (b: Build) => void }) {
  const [trouble, attempt] = useTrouble();
  const [text, setText] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const start = () => attempt(async () => {
    const field = (name: string) => form.current!.elements.namedItem(name) as HTMLInputElement;
    const tar = field("tar").files?.[0], folder = field("folder").files;
    const context = tar ?? (folder?.length ? filesOf(folder) : undefined);
    built(await bothy.templates.startBuild({
      name: field("name").value, dockerfile: text || undefined, context, target: field("target").value || undefined, noCache: field("fresh").checked || undefined,
    }));
  });
  return (
    <details><summary>Build from a Dockerfile</summary>
      <form ref={form} class="create" onSubmit={(e) => e.preventDefault()}>
        <label>Name of the template <input name="name" required /></label>
        <label>Stage <input name="target" placeholder="the last" /></label>
        <label>A Dockerfile <input type="file" onChange={(e) => void e.currentTarget.files?.[0]?.text().then(setText)} /></label>
        <label>Folder for COPY <input name="folder" type="file" {...{ webkitdirectory: true }} /></label>
        <label>Or a tar of it <input name="tar" type="file" accept=".tar,.tgz,.gz" /></label>
        <label class="check"><input name="fresh" type="checkbox" /> Build every step anew</label>
        <label class="whole">Dockerfile <textarea class="editor small" spellcheck={false} value={text} placeholder={"FROM python-3.12\nRUN pip install pandas"} onInput={(e) => setText(e.currentTarget.value)} /></label>
        <Button work={start}>Build</Button>
      </form>
      <Trouble text={trouble} />
    </details>
  );
}

/** What a build says, from its beginning and on. */
function BuildLog({ id, ended }: { id: string; ended: () => void }) {
  const [lines, setLines] = useState<string[]>([]);
  const [trouble, attempt] = useTrouble();
  const end = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const left = new AbortController();
    setLines([]);
    const add = (e: BuildEvent) => setLines((old) => [...old.slice(-5000), lineOf(e)]);
    void attempt(() => bothy.templates.waitForBuild(id, { onProgress: add, signal: left.signal }).catch((error) => {
      if (!left.signal.aborted) throw error;
    })).then(() => left.signal.aborted || ended());
    return () => left.abort();
  }, [id]);
  useEffect(() => end.current?.scrollTo(0, end.current.scrollHeight), [lines]);
  return <><Trouble text={trouble} /><pre ref={end} tabIndex={0} role="log" aria-label={`The build ${id}`}>{lines.join("\n") || "Waiting for its first step…"}</pre></>;
}

const lineOf = (e: BuildEvent) => [e.step, e.message ?? e.error, e.percent !== undefined && `${e.percent} %`].filter(Boolean).join(": ");
const underWay = (b: Build) => !b.endedAt;

export function Templates({ login }: { login: Login }) {
  const { value, trouble, again } = useRead(() => bothy.templates.list(), "");
  const write = may(login, "templates:write");
  const builds = useRead(() => bothy.templates.builds(), "", 3);
  const [shown, setShown] = useState("");
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
        {write && <>
          <label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
          <label>Image <input value={image} placeholder="debian:12, or none for a built-in one" onInput={(e) => setImage(e.currentTarget.value)} /></label>
          <Button disabled={!name} work={build}>Import</Button></>}</div>
      <Trouble text={failed || trouble || builds.trouble} />
      {steps.length > 0 && <pre tabIndex={0} role="log" aria-label="The build">{steps.map(lineOf).join("\n")}</pre>}
      {write && <DockerfileForm built={(b) => (setShown(b.id), void builds.again())} />}
      {shown && <BuildLog key={shown} id={shown} ended={() => (void builds.again(), void again())} />}
      {builds.value && builds.value.length > 0 && <table><thead><tr><th>Build</th><th>State</th><th>Steps</th><th>Begun</th><th><span class="hidden">What to do</span></th></tr></thead>
        <tbody>{builds.value.map((b) => <tr key={b.id}><td>{b.name}</td><td class={b.state === "failed" ? "no" : ""}>{b.state}{b.error && `: ${b.error}`}</td><td>{b.done} of {b.steps}</td><td><Time at={b.createdAt} /></td>
          <td><Button work={async () => setShown(b.id)}>Log</Button>{write && underWay(b) && <Button kind="danger" work={() => attempt(async () => (await bothy.templates.cancelBuild(b), await builds.again()))}>Cancel</Button>}</td></tr>)}</tbody></table>}
      {value?.length === 0 && <p>There is no template. Build one with <Command>bothy template build python-3.12</Command></p>}
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
  const [chosen, setBy] = useState("day");
  const [label, setLabel] = useState("");
  const by = chosen === "label" ? label && `label:${label}` : chosen;
  const { value, trouble } = useRead(() => bothy.usage({ groupBy: by || "day" }), by);
  const limits = useRead(() => bothy.limits(), "");
  const nameOf = (i: NonNullable<typeof value>["items"][number]) => (by.startsWith("label:") ? i.labels?.[label] || "none" : i.day ?? i.project ?? i.template ?? i.sandbox ?? "");
  const top = Math.max(...(value?.items.map((i) => i.cost) ?? []), 1e-9);
  const csv = async () => save("usage.csv", [[by, "cost", "vcpu_seconds", "cpu_seconds", "memory_mb_seconds", "egress_bytes"].join(","),
    ...value!.items.map((i) => [nameOf(i), i.cost, i.vcpuSeconds, i.cpuSeconds, i.memoryMbSeconds, i.egressBytes].map(cell).join(","))].join("\n") + "\n");
  return (
    <main>
      <div class="bar"><h1>Usage</h1>
        <label>By <select value={chosen} onChange={(e) => setBy(e.currentTarget.value)}><option>day</option><option>project</option><option>template</option><option>sandbox</option><option>label</option></select></label>
        {chosen === "label" && <label>Label <input placeholder="team" onChange={(e) => setLabel(e.currentTarget.value)} /></label>}
        <Button disabled={!value} work={csv}>CSV</Button></div>
      <Trouble text={trouble || limits.trouble} />
      {limits.value && <p>Plan {limits.value.plan}: {limits.value.sandboxes.used} sandboxes of {limits.value.sandboxes.limit ?? "any number"}, {limits.value.snapshots.usedMb} MB of snapshots.</p>}
      {value && <p>In all {value.total.cost.toFixed(4)} {value.currency}.</p>}
      <table><thead><tr><th>{by || "day"}</th><th>Cost</th><th>CPU time</th><th><span class="hidden">Plot</span></th></tr></thead>
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
