/** Templates and their builds. */
import type { Build, BuildEvent, Template } from "bothy";
import { useEffect, useRef, useState } from "preact/hooks";
import { bothy, type Login, may } from "./server";
import { Button, bytes, Command, Empty, Time, Trouble, useRead, useTrouble } from "./ui";

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
        <label class="check"><input name="fresh" type="checkbox" /> Rebuild every step</label>
        <label class="whole">Dockerfile <textarea class="editor small" spellcheck={false} value={text} placeholder={"FROM python-3.12\nRUN pip install pandas"} onInput={(e) => setText(e.currentTarget.value)} /></label>
        <div class="whole"><Button kind="main" work={start}>Build</Button></div>
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
  const remove = (t: Template) => attempt(async () => {
    if (!confirm(`Remove the template ${t.name}? Running sandboxes are not affected.`)) return;
    await bothy.templates.delete(t.name);
    await again();
  });
  const tag = (t: Template) => attempt(async () => {
    const tags = prompt(`More tags for ${t.name}, such as v1 or stable:`)?.split(/[\s,]+/).filter(Boolean);
    if (!tags?.length) return;
    await bothy.templates.tag(t.name, tags);
    await again();
  });
  return (
    <main>
      <div class="bar"><h1>Templates {value && <small>{value.length}</small>}</h1></div>
      <Trouble text={failed || trouble || builds.trouble} />
      {write && <DockerfileForm built={(b) => (setShown(b.id), void builds.again())} />}
      {write && (
        <details><summary>Import an image, or make a built-in template</summary>
          <form class="create" onSubmit={(e) => e.preventDefault()}>
            <label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
            <label>Image <input value={image} placeholder="debian:12, or none for a built-in one" onInput={(e) => setImage(e.currentTarget.value)} /></label>
            <div class="whole"><Button kind="main" disabled={!name} work={build}>Import</Button></div>
          </form>
        </details>
      )}
      {steps.length > 0 && <pre tabIndex={0} role="log" aria-label="The build">{steps.map(lineOf).join("\n")}</pre>}
      {shown && <BuildLog key={shown} id={shown} ended={() => (void builds.again(), void again())} />}
      {!value && !trouble && <p class="waits" role="status">Reading the templates…</p>}
      {value?.length === 0 && <Empty><p>There is no template.</p><p>Build one with <Command>bothy template build python-3.12</Command></p></Empty>}
      {value && value.length > 0 && (
        <table><thead><tr><th>Name</th><th>Description</th><th>Digest</th><th class="number">Size</th><th>Packages</th>{write && <th><span class="hidden">What to do</span></th>}</tr></thead>
          <tbody>{value.map((t) => <tr key={t.digest + t.name}><td><b>{t.name}</b></td><td>{t.description}</td><td class="once"><code title={t.digest}>{t.digest.slice(0, 19)}</code></td><td class="number">{bytes(t.sizeBytes)}</td>
            <td>{t.packages && Object.keys(t.packages).length > 0 ? <details><summary>{Object.keys(t.packages).length}</summary>{Object.entries(t.packages).map(([k, v]) => `${k} ${v}`).join(", ")}</details> : "–"}</td>
            {write && <td><Button kind="quiet" label={`Tag ${t.name}`} work={() => tag(t)}>Tag</Button><Button kind="quiet danger" work={() => remove(t)}>Remove</Button></td>}</tr>)}</tbody></table>
      )}
      {builds.value && builds.value.length > 0 && (
        <section aria-label="Builds"><h2>Builds</h2>
          <table><thead><tr><th>Build</th><th>State</th><th>Steps</th><th>Begun</th><th><span class="hidden">What to do</span></th></tr></thead>
            <tbody>{builds.value.map((b) => <tr key={b.id}><td>{b.name}</td><td class={b.state === "failed" ? "no" : b.state === "succeeded" ? "yes" : ""}>{b.state}{b.error && `: ${b.error}`}</td><td>{underWay(b) && b.steps > 0 && <progress value={b.done} max={b.steps} aria-label={`Steps of ${b.name}`} />} {b.done} of {b.steps}</td><td><Time at={b.createdAt} /> ago</td>
              <td><Button kind="quiet" work={async () => setShown(b.id)}>Log</Button>{write && underWay(b) && <Button kind="quiet danger" work={() => attempt(async () => (await bothy.templates.cancelBuild(b), await builds.again()))}>Cancel</Button>}</td></tr>)}</tbody></table></section>
      )}
    </main>
  );
}
