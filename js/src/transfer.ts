/**
 * Moving files and folders between this computer and a sandbox. Only for
 * runtimes that have Node's file system.
 *
 * @module
 * @internal
 */
import type { Stats } from "node:fs";
import type { TransferResult } from "./types.js";
import { requireNodeModule } from "./runtime.js";
import { readTar, type TarEntry, tarEnd, tarHeader, tarPadding } from "./tar.js";

type Fs = typeof import("node:fs/promises");
type Path = typeof import("node:path");

/** The local file system. */
export interface Local {
  fs: Fs;
  path: Path;
}

/** Loads what is needed to touch local files. */
export async function local(): Promise<Local> {
  const what = "moving local files";
  return { fs: await requireNodeModule<Fs>("node:fs/promises", what), path: await requireNodeModule<Path>("node:path", what) };
}

/** Returns the path that a file: URL or a string names. */
export async function localPath(target: string | URL): Promise<string> {
  if (typeof target === "string") return target;
  const { fileURLToPath } = await requireNodeModule<typeof import("node:url")>("node:url", "a file: URL");
  return fileURLToPath(target);
}

async function* chunksOf(fs: Fs, path: string): AsyncGenerator<Uint8Array, void, undefined> {
  const file = await fs.open(path);
  try {
    for (;;) {
      const { bytesRead, buffer } = await file.read({ buffer: new Uint8Array(256 << 10), position: null });
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** Returns a local file as a stream. */
export function streamFile({ fs }: Local, path: string): ReadableStream<Uint8Array> {
  return streamOf(chunksOf(fs, path));
}

/** Returns a stream of what a generator yields. */
export function streamOf(source: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

/** What of a folder is packed, by paths in it. */
export interface Choice {
  wanted: (name: string) => boolean;
  /** Whether to look into a folder. */
  enter: (name: string) => boolean;
}

const everything: Choice = { wanted: () => true, enter: () => true };

async function* walk({ fs, path }: Local, root: string, choice: Choice, below = ""): AsyncGenerator<{ name: string; stats: Stats }, void, undefined> {
  const entries = await fs.readdir(path.join(root, below));
  for (const entry of entries.sort()) {
    const name = below ? `${below}/${entry}` : entry;
    const stats = await fs.lstat(path.join(root, name));
    if (choice.wanted(name)) yield { name, stats };
    if (stats.isDirectory() && choice.enter(name)) yield* walk({ fs, path }, root, choice, name);
  }
}

/** Yields a tar archive of a local folder's content, or of a part of it, and counts it in result. */
export async function* packFolder(at: Local, root: string, result: TransferResult, choice = everything): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const { name, stats } of walk(at, root, choice)) {
    const path = at.path.join(root, name);
    const common = { mode: stats.mode & 0o7777, mtime: stats.mtimeMs / 1000 };
    if (stats.isDirectory()) yield tarHeader({ ...common, name: `${name}/`, type: "directory", size: 0 });
    else if (stats.isSymbolicLink()) yield tarHeader({ ...common, name, type: "symlink", size: 0, linkTarget: await at.fs.readlink(path) });
    else if (stats.isFile()) yield* packFile(at, path, name, stats, result);
    else result.skipped.push(name);
  }
  yield tarEnd;
}

async function* packFile(at: Local, path: string, name: string, stats: Stats, result: TransferResult): AsyncGenerator<Uint8Array, void, undefined> {
  yield tarHeader({ name, type: "file", mode: stats.mode & 0o7777, mtime: stats.mtimeMs / 1000, size: stats.size });
  let left = stats.size;
  for await (const chunk of chunksOf(at.fs, path)) {
    const piece = chunk.subarray(0, left);
    left -= piece.length;
    yield piece;
    if (left === 0) break;
  }
  if (left > 0) throw new Error(`${path} became shorter while it was read`);
  yield tarPadding(stats.size);
  result.files++;
  result.bytes += stats.size;
}

/**
 * Unpacks an archive that came from a sandbox and is not trusted: nothing is
 * written outside of root, and links are made last, so that no entry is written
 * through one.
 */
export class Unpacker {
  readonly #local: Local;
  readonly #root: string;
  readonly #links: { entry: TarEntry; path: string }[] = [];
  readonly #folders: { path: string; mtime: number }[] = [];
  readonly result: TransferResult = { files: 0, bytes: 0, skipped: [] };

  constructor(at: Local, root: string) {
    this.#local = at;
    this.#root = at.path.resolve(root);
  }

  /** Unpacks everything. */
  async unpack(archive: AsyncIterable<Uint8Array>): Promise<TransferResult> {
    await this.#local.fs.mkdir(this.#root, { recursive: true });
    for await (const entry of readTar(archive)) await this.#entry(entry);
    for (const { entry, path } of this.#links) await this.#link(entry, path);
    for (const { path, mtime } of this.#folders.reverse()) await this.#local.fs.utimes(path, mtime, mtime);
    return this.result;
  }

  async #entry(entry: TarEntry): Promise<void> {
    const path = this.#local.path.resolve(this.#root, entry.name);
    if (path === this.#root && entry.type === "directory") return;
    if (!this.#isInside(path) || path === this.#root) throw new Error(`the sandbox sent the path ${JSON.stringify(entry.name)}, which lies outside of the folder`);
    await this.#makeParents(path);
    if (entry.type === "directory") await this.#folder(entry, path);
    else if (entry.type === "file") await this.#file(entry, path);
    else if (entry.type === "symlink" || entry.type === "link") this.#links.push({ entry, path });
    else this.result.skipped.push(entry.name);
  }

  #isInside(path: string): boolean {
    return path === this.#root || path.startsWith(this.#root.endsWith(this.#local.path.sep) ? this.#root : this.#root + this.#local.path.sep);
  }

  /** Makes the folders between root and path; a link among them, left there by somebody else, is an error. */
  async #makeParents(path: string): Promise<void> {
    const { fs, path: p } = this.#local;
    let at = this.#root;
    for (const part of p.relative(this.#root, p.dirname(path)).split(p.sep).filter(Boolean)) {
      at = p.join(at, part);
      await makeFolder(fs, at);
    }
  }

  async #folder(entry: TarEntry, path: string): Promise<void> {
    await makeFolder(this.#local.fs, path);
    await this.#local.fs.chmod(path, (entry.mode & 0o777) | 0o700);
    this.#folders.push({ path, mtime: entry.mtime });
  }

  async #file(entry: TarEntry, path: string): Promise<void> {
    this.result.bytes += await writeFile(this.#local, path, entry.content, { mode: entry.mode & 0o777, mtime: entry.mtime });
    this.result.files++;
  }

  async #link(entry: TarEntry, path: string): Promise<void> {
    const { fs, path: p } = this.#local;
    const target = entry.linkTarget ?? "";
    const from = entry.type === "link" ? this.#root : p.dirname(path);
    if (climbsAfterwards(target) || p.isAbsolute(target) || !this.#isInside(p.resolve(from, target))) {
      this.result.skipped.push(entry.name);
      return;
    }
    await fs.rm(path, { force: true });
    if (entry.type === "symlink") await fs.symlink(target, path);
    else await this.#hardLink(p.resolve(from, target), path, entry);
  }

  async #hardLink(target: string, path: string, entry: TarEntry): Promise<void> {
    const { fs } = this.#local;
    const real = await fs.lstat(target).catch(() => undefined);
    if (real?.isFile() && (await fs.realpath(target)) === target) await fs.link(target, path);
    else this.result.skipped.push(entry.name);
  }
}

/**
 * Tells whether `..` follows a name. That name may be a link itself, and then
 * the path does not lead where its letters say.
 */
function climbsAfterwards(target: string): boolean {
  return /(^|\/)(?!\.{1,2}(\/|$))[^/]+\/(.*\/)?\.\.(\/|$)/.test(target);
}

async function makeFolder(fs: Fs, path: string): Promise<void> {
  const there = await fs.lstat(path).catch(() => undefined);
  if (there?.isDirectory()) return;
  if (there) throw new Error(`${path} is in the way: it is not a folder`);
  await fs.mkdir(path);
}

/** Writes a temporary file and renames it to its place, and returns its size. */
export async function writeFile({ fs, path: p }: Local, path: string, content: AsyncIterable<Uint8Array>, attributes: { mode: number; mtime: number }): Promise<number> {
  const beside = p.join(p.dirname(path), `.${p.basename(path).slice(0, 100)}.${globalThis.crypto.randomUUID()}`);
  const file = await fs.open(beside, "wx", 0o600);
  let size = 0;
  try {
    try {
      for await (const chunk of content) {
        await file.writeFile(chunk);
        size += chunk.length;
      }
      await file.chmod(attributes.mode);
      await file.utimes(attributes.mtime, attributes.mtime);
    } finally {
      await file.close();
    }
    await fs.rename(beside, path);
  } catch (error) {
    await fs.rm(beside, { force: true });
    throw error;
  }
  return size;
}
