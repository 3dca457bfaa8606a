/** The files of a sandbox: browse, edit, upload, download. */
import type { FileInfo, Sandbox } from "bothy";
import { useState } from "preact/hooks";
import type { Editor } from "./editor";
import { Button, bytes, save, Time, Trouble, useRead, useTrouble } from "./ui";

const editable = 1 << 20;
const join = (folder: string, name: string) => `${folder === "/" ? "" : folder}/${name}`;
const parent = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";

async function whole(stream: ReadableStream<Uint8Array>): Promise<BlobPart[]> {
  const parts: BlobPart[] = [];
  const reader = stream.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value as Uint8Array<ArrayBuffer>);
  return parts;
}

export function FilesTab({ sandbox, write }: { sandbox: Sandbox; write: boolean }) {
  const [folder, setFolder] = useState("/workspace");
  const [open, setOpen] = useState<{ path: string; text: string; Editor: typeof Editor }>();
  const { value, trouble, again } = useRead(() => sandbox.files.list(folder), folder);
  const [failed, attempt] = useTrouble();
  const show = (f: FileInfo) => attempt(async () => {
    if (f.type === "directory") return setFolder(join(folder, f.name));
    if (f.size > editable) throw new Error(`${f.name} has ${bytes(f.size)}, which is too much to edit here. Download it.`);
    const path = join(folder, f.name);
    const [text, { Editor }] = await Promise.all([sandbox.files.read(path), import("./editor")]);
    setOpen({ path, text, Editor });
  });
  const download = (f: FileInfo) => attempt(async () => {
    const path = join(folder, f.name);
    if (f.type === "directory") save(`${f.name}.tar`, await whole(await sandbox.files.readArchive(path)));
    else save(f.name, await whole(await sandbox.files.readStream(path)));
  });
  const upload = (files: FileList | null | undefined) => attempt(async () => {
    for (const f of files ?? []) await sandbox.files.write(join(folder, f.name), f);
    await again();
  });
  const remove = (f: FileInfo) => attempt(async () => {
    if (!confirm(`Delete ${f.name}?`)) return;
    await sandbox.files.remove(join(folder, f.name));
    await again();
  });
  const drop = (e: DragEvent) => {
    e.preventDefault();
    if (write) void upload(e.dataTransfer?.files);
  };
  return (
    <div class="files" onDragOver={(e) => e.preventDefault()} onDrop={drop}>
      <div class="bar">
        <button type="button" disabled={folder === "/"} onClick={() => setFolder(parent(folder))}>Up</button>
        <code>{folder}</code>
        {write && <label>Upload <input type="file" multiple onChange={(e) => void upload(e.currentTarget.files)} /></label>}
      </div>
      <Trouble text={failed || trouble} />
      {value?.length === 0 && <p>This folder is empty.{write && " Drop files here."}</p>}
      <table><thead><tr><th>Name</th><th>Size</th><th>Changed</th><th><span class="hidden">Act</span></th></tr></thead>
        <tbody>{value?.map((f) => (
          <tr key={f.name}><td><button type="button" class="name" onClick={() => void show(f)}>{f.name}{f.type === "directory" && "/"}</button></td>
            <td>{f.type === "file" && bytes(f.size)}</td><td><Time at={f.modifiedAt} /></td>
            <td><Button work={() => download(f)}>Download</Button>{write && <Button work={() => remove(f)}>Delete</Button>}</td></tr>
        ))}</tbody></table>
      {open && (
        <section>
          <h2>{open.path}</h2>
          <open.Editor key={open.path} path={open.path} text={open.text} write={write} change={(text) => setOpen((old) => old && { ...old, text })} />
          {write && <Button work={() => attempt(async () => (await sandbox.files.write(open.path, open.text), await again()))}>Save</Button>}
          <button type="button" onClick={() => setOpen(undefined)}>Close</button>
        </section>
      )}
    </div>
  );
}
