/** The files of a sandbox: browse, edit, bring in and take out. */
import type { FileInfo, Sandbox } from "bothy";
import { useEffect, useRef, useState } from "preact/hooks";
import { draft, keepDraft } from "./drafts";
import type { Editor } from "./editor";
import { A, Button, bytes, Empty, go, Moment, save, Trouble, useRead, useTrouble } from "./ui";

const editable = 1 << 20;
/** How large a file may be that is dragged out: it is fetched when the button goes down. */
const draggable = 16 << 20;
const join = (folder: string, name: string) => `${folder === "/" ? "" : folder}/${name}`;
const parent = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";

/** A file in the editor: its text, what of it is saved, and when it was last changed, in milliseconds. */
interface Open { path: string; text: string; saved: string; changed: number }

/** A file on its way, or many. */
interface Way { name: string; done: number; of?: number }

async function whole(stream: ReadableStream<Uint8Array>, moved: (n: number) => void): Promise<BlobPart[]> {
  const parts: BlobPart[] = [];
  const reader = stream.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    parts.push(next.value as Uint8Array<ArrayBuffer>);
    moved(next.value.length);
  }
  return parts;
}

interface Incoming { path: string; file?: File }

/** What was dropped, with all that is in folders; a folder has no file. */
async function dropped(items: DataTransferItemList): Promise<Incoming[]> {
  const list: Incoming[] = [];
  const walk = async (entry: FileSystemEntry): Promise<void> => {
    const path = entry.fullPath.slice(1);
    if (entry.isFile) return void list.push({ path, file: await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed)) });
    list.push({ path });
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
      if (some.length === 0) return;
      for (const e of some) await walk(e);
    }
  };
  for (const [entry, file] of [...items].map((i) => [i.webkitGetAsEntry(), i.getAsFile()] as const)) { // all at once: they are gone after the event
    if (entry) await walk(entry);
    else if (file) list.push({ path: file.name, file });
  }
  return list;
}

function Crumbs({ sandbox, folder }: { sandbox: Sandbox; folder: string }) {
  const names = folder.split("/").filter(Boolean);
  const to = (n: number) => `sandboxes/${sandbox.id}/files/${names.slice(0, n).map(encodeURIComponent).join("/") || "."}`;
  return (
    <nav class="crumbs mono" aria-label="Folder">
      <A to={to(0)}>/</A>
      {names.map((name, i) => <span key={i}>{i < names.length - 1 ? <><A to={to(i + 1)}>{name}</A> /</> : <b>{name}</b>}</span>)}
    </nav>
  );
}

export function FilesTab({ sandbox, folder: asked, write, paused }: { sandbox: Sandbox; folder: string; write: boolean; paused: boolean }) {
  const folder = asked === "/" ? "/workspace" : asked === "/." ? "/" : asked;
  const [open, setOpen] = useState<Open & { Editor: typeof Editor }>();
  const kept = `file ${sandbox.id}`;
  const unsaved = open && open.text !== open.saved;
  useEffect(() => { // what was typed before the page was left or loaded again
    const old = draft<Open>(kept);
    if (old) void import("./editor").then(({ Editor }) => setOpen((now) => now ?? { ...old, Editor }));
  }, []);
  useEffect(() => {
    if (!open) return;
    const { Editor: _, ...file } = open;
    keepDraft(kept, unsaved ? file : undefined);
    if (!unsaved) return;
    const ask = (e: BeforeUnloadEvent) => e.preventDefault(); // a tab that is closed forgets it
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [open]);
  const { value, trouble, again } = useRead(() => sandbox.files.list(folder), folder, 10);
  useEffect(() => {
    if (!paused) void again();
  }, [paused]);
  const [failed, attempt] = useTrouble();
  const [way, setWay] = useState<Way>();
  const [over, setOver] = useState(false);
  const at = (path: string) => `sandboxes/${sandbox.id}/files/${path.split("/").filter(Boolean).map(encodeURIComponent).join("/") || "."}`;
  const leaves = () => !unsaved || confirm(`Leave ${open.path} without saving it?`);
  const close = () => {
    keepDraft(kept, undefined);
    setOpen(undefined);
  };
  const show = (f: FileInfo) => attempt(async () => {
    if (!leaves()) return;
    if (f.size > editable) throw new Error(`${f.name} has ${bytes(f.size)}, which is too much to edit here. Download it.`);
    const path = join(folder, f.name);
    if (f.linkTarget && (await sandbox.files.list(path).catch(() => undefined))) return go(at(path)); // a link to a folder
    const [text, { Editor }] = await Promise.all([sandbox.files.read(path), import("./editor")]);
    setOpen({ path, text, saved: text, changed: +f.modifiedAt, Editor });
  });
  const download = (f: FileInfo) => attempt(async () => {
    const path = join(folder, f.name), folders = f.type === "directory";
    const name = folders ? `${f.name}.tar` : f.name;
    const stream = folders ? await sandbox.files.readArchive(path) : await sandbox.files.readStream(path);
    let done = 0;
    save(name, await whole(stream, (n) => setWay({ name, done: (done += n), of: folders ? undefined : f.size })));
  }).finally(() => setWay(undefined));
  const held = useRef<{ path: string; url: string }>();
  const letGo = () => {
    if (held.current) URL.revokeObjectURL(held.current.url);
    held.current = undefined;
  };
  useEffect(() => letGo, []);
  const movable = (f: FileInfo) => f.type === "file" && f.size <= draggable;
  const hold = (f: FileInfo) => attempt(async () => {
    if (!movable(f)) return;
    const path = join(folder, f.name), content = await sandbox.files.readBytes(path);
    letGo();
    held.current = { path, url: URL.createObjectURL(new Blob([content as BlobPart], { type: "application/octet-stream" })) };
  });
  const drag = (e: DragEvent, f: FileInfo) => { // a browser takes the bytes of what is dropped outside from the address
    if (held.current?.path !== join(folder, f.name)) return e.preventDefault();
    e.dataTransfer!.effectAllowed = "copy";
    e.dataTransfer!.setData("DownloadURL", `application/octet-stream:${f.name.replaceAll(":", "_")}:${held.current.url}`);
  };
  const upload = (list: Incoming[]) => attempt(async () => {
    const of = list.reduce((n, i) => n + (i.file?.size ?? 0), 0);
    let done = 0;
    for (const { path, file } of list) {
      setWay({ name: path, done, of });
      if (file) await sandbox.files.write(join(folder, path), file);
      else await sandbox.files.mkdir(join(folder, path));
      done += file?.size ?? 0;
    }
    await again();
  }).finally(() => setWay(undefined));
  const unpack = (tar: File | undefined) => attempt(async () => {
    if (!tar) return;
    setWay({ name: tar.name, done: 0 });
    await sandbox.files.writeArchive(folder, tar);
    await again();
  }).finally(() => setWay(undefined));
  const make = () => attempt(async () => {
    const name = prompt("Name of the folder");
    if (name) await sandbox.files.mkdir(join(folder, name)).then(again);
  });
  const remove = (f: FileInfo) => attempt(async () => {
    if (!confirm(`Delete ${f.name}${f.type === "directory" ? " and everything in it" : ""}?`)) return;
    await sandbox.files.remove(join(folder, f.name));
    await again();
  });
  const keep = () => attempt(async () => {
    if (!open) return;
    const there = await sandbox.files.stat(open.path).catch(() => undefined); // one that is gone is made again
    if (there && +there.modifiedAt !== open.changed && !confirm(`${open.path} was changed by something else since you opened it. Replace that?`)) return;
    await sandbox.files.write(open.path, open.text);
    const changed = +(await sandbox.files.stat(open.path)).modifiedAt;
    setOpen((old) => old && { ...old, saved: open.text, changed });
    await again();
  });
  const drop = (e: DragEvent) => {
    e.preventDefault();
    setOver(false);
    if (write && e.dataTransfer) void attempt(async () => upload(await dropped(e.dataTransfer!.items)));
  };
  const sorted = value && [...value].sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory") || a.name.localeCompare(b.name));
  return (
    <div class={over ? "files over" : "files"} onDragOver={(e) => (e.preventDefault(), setOver(write))} onDragLeave={(e) => e.currentTarget.contains(e.relatedTarget as Node) || setOver(false)} onDrop={drop}>
      <div class="bar">
        <Crumbs sandbox={sandbox} folder={folder} />
        {write && (
          <>
            <Button work={make}>New folder</Button>
            <label class="button">Upload <input class="hidden" type="file" multiple onChange={(e) => void upload([...(e.currentTarget.files ?? [])].map((file) => ({ path: file.name, file })))} /></label>
            <label class="button">Unpack a tar <input class="hidden" type="file" accept=".tar" onChange={(e) => void unpack(e.currentTarget.files?.[0])} /></label>
          </>
        )}
      </div>
      <Trouble text={failed || trouble} />
      {way && <p role="status"><progress max={way.of || undefined} value={way.of ? way.done : undefined} aria-label={way.name} /> {way.name} <small>{bytes(way.done)}{way.of ? ` of ${bytes(way.of)}` : ""}</small></p>}
      {!value && !trouble && <p class="waits" role="status">Reading {folder}…</p>}
      {value?.length === 0 && folder === "/workspace" && <Empty><p>Nothing is here yet.</p>{write && <p>Drop files or folders on this page.</p>}</Empty>}
      {sorted && (sorted.length > 0 || folder !== "/workspace") && (
        <table><thead><tr><th>Name</th><th class="number">Size</th><th>Changed</th><th>Owner</th><th>Mode</th><th><span class="hidden">What to do</span></th></tr></thead>
          <tbody>
            {folder !== "/" && <tr><td><A to={at(parent(folder))}>..</A></td><td /><td /><td /><td /><td /></tr>}
            {sorted.map((f) => (
              <tr key={f.name}>
                <td class="mono" draggable={movable(f)} onPointerDown={() => void hold(f)} onDragStart={(e) => drag(e, f)}>{f.type === "directory" ? <A to={at(join(folder, f.name))}>{f.name}/</A> : <button type="button" class="name" onClick={() => void show(f)}>{f.name}</button>}{f.linkTarget && <small> → {f.linkTarget}</small>}</td>
                <td class="number">{f.type === "directory" ? "" : bytes(f.size)}</td><td><Moment at={f.modifiedAt} /></td><td>{f.owner}</td><td class="mono">{f.mode}</td>
                <td><Button kind="quiet" work={() => download(f)}>Download</Button>{write && <Button kind="quiet danger" work={() => remove(f)}>Delete</Button>}</td>
              </tr>
            ))}
          </tbody></table>
      )}
      {open && (
        <section>
          <h2 class="mono">{open.path}{unsaved && <small> · not saved</small>}</h2>
          <open.Editor key={open.path} path={open.path} text={open.text} write={write} change={(text) => setOpen((old) => old && { ...old, text })} keep={() => void keep()} />
          <div class="bar" style={{ marginTop: ".6rem" }}>
            {write && <Button kind="main" work={keep} title="Ctrl+S">Save</Button>}
            <button type="button" onClick={() => leaves() && close()}>Close</button>
          </div>
        </section>
      )}
    </div>
  );
}
