import { FileNotFoundInSandboxError, IsADirectoryInSandboxError, NotADirectoryInSandboxError } from "./errors.js";
import { type Local, local, localPath, packFolder, streamFile, streamOf, Unpacker, writeFile } from "./transfer.js";
import type { Call, CallOptions, EventStream, RawBody, Transport } from "./transport.js";
import type { TransferResult } from "./types.js";
import { fromWire, type QueryValue } from "./wire.js";

/** The kind of a file system entry. */
export type FileType = "file" | "directory" | "symlink" | "other";

/** One entry of a sandbox's file system. */
export interface FileInfo {
  name: string;
  path: string;
  type: FileType;
  /** In bytes. */
  size: number;
  /** Permissions, as the server writes them. */
  mode: string;
  uid: number;
  gid: number;
  owner?: string;
  group?: string;
  modifiedAt: Date;
  /** Where a symbolic link points to. */
  linkTarget?: string;
}

/** One change under a watched folder. */
export interface FileEvent {
  type: "create" | "write" | "remove" | "rename" | "chmod" | "overflow";
  /** The whole path of what changed. */
  path: string;
  /** Its path below the watched folder. */
  name: string;
}

/** Options of every file operation. */
export interface FileOptions extends CallOptions {
  /** The user whose rights apply, and who owns new files. Default `user`. */
  user?: string;
}

/** Options of {@link Files.write}. */
export interface WriteOptions extends FileOptions {
  /** Permission bits, such as `0o755`. Default `0o644`. */
  mode?: number;
  /** Kept as the modification time. */
  modifiedAt?: Date;
  /**
   * Replaces any existing file with a new one owned by the user, in one step, even one that the user may not write.
   * Otherwise the file is written in place, and a reader may for a moment see old and new content mixed.
   */
  atomic?: boolean;
}

/** Options of {@link Files.readBytes}. */
export interface ReadOptions extends FileOptions {
  /** Where to begin, in bytes. Reading beyond the end of the file returns nothing and is not an error. */
  offset?: number;
  /** How many bytes to read at most. */
  length?: number;
}

/** Options of {@link Files.readArchive}. */
export interface ArchiveOptions extends FileOptions {
  /** Compresses the tar. */
  gzip?: boolean;
  /**
   * What to leave out, as a .gitignore names it, without negation: `node_modules` and `*.log` at any depth,
   * `/build` and `src/gen` below the folder itself, `cache/` only folders.
   */
  exclude?: string[];
}

/** What {@link Files.write} takes. A string is written as UTF-8. */
export type FileContent = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** The file system of a sandbox. Relative paths start at `/workspace`. */
export class Files {
  readonly #transport: Transport;
  readonly #base: string;

  /** @internal */
  constructor(transport: Transport, sandboxPath: string) {
    this.#transport = transport;
    this.#base = `${sandboxPath}/files`;
  }

  /** Returns a file as text (UTF-8). */
  async read(path: string, options: FileOptions = {}): Promise<string> {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await this.readBytes(path, options));
  }

  /** Returns the bytes of a file, or from `offset` on at most `length` of them. */
  async readBytes(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const { offset = 0, length } = options;
    const headers = rangeHeader(offset, length);
    return this.#transport.read({ ...this.#get(path, options), ...(headers && { headers }) }, async (response) => {
      if (isListing(response)) throw notAFile(path);
      const { size = 0 } = JSON.parse(response.headers.get("x-file-info") ?? "{}") as { size?: number };
      const partial = response.status === 206;
      if (length === 0 || (!partial && size > 0 && size <= offset)) {
        await response.body?.cancel();
        return new Uint8Array();
      }
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (headers === undefined) return bytes;
      const start = partial ? 0 : offset; // the kernel's files, which have no size, always come whole
      return bytes.slice(start, length === undefined ? undefined : start + length);
    });
  }

  /** Returns a file as a stream of bytes. Cancel the stream to leave early. */
  async readStream(path: string, options: FileOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const answer = await this.#transport.open(this.#get(path, options));
    if (!isListing(answer.response)) return streamOf(answer.chunks());
    answer.close();
    throw notAFile(path);
  }

  /**
   * Writes a file, creating the folders above it. An existing file keeps its owner, mode and other names.
   * Programs that watch it or have it open see the change; a reader may for a moment see old and new content mixed, unless `atomic` is set.
   */
  async write(path: string, content: FileContent, options: WriteOptions = {}): Promise<FileInfo> {
    return this.#put(path, toBody(content), options);
  }

  /** Lists a folder, `depth` levels deep (by default 1, its own entries). */
  async list(path = ".", options: FileOptions & { depth?: number } = {}): Promise<FileInfo[]> {
    const { user, depth, signal } = options;
    const query = { path, user, depth };
    return this.#transport.read({ path: this.#base, query, headers: { Accept: "application/json" }, signal }, async (response) => {
      if (!isListing(response)) throw notAFolder(path);
      return fromWire<{ items: FileInfo[] }>(await response.json()).items;
    });
  }

  /** Describes one entry. */
  async stat(path: string, options: FileOptions = {}): Promise<FileInfo> {
    return this.#json("GET", "stat", { path, user: options.user }, options);
  }

  /** Tells whether there is anything at a path. */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof FileNotFoundInSandboxError || error instanceof NotADirectoryInSandboxError) return false;
      throw error;
    }
  }

  /** Creates a folder and those above it. It may exist already. */
  async mkdir(path: string, options: FileOptions = {}): Promise<FileInfo> {
    return this.#json("POST", "mkdir", { path, user: options.user }, options);
  }

  /** Moves or renames an entry. */
  async move(from: string, to: string, options: FileOptions = {}): Promise<FileInfo> {
    return this.#json("POST", "move", { from, to, user: options.user }, options);
  }

  /** Removes a file, or a folder with everything in it. */
  async remove(path: string, options: FileOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: this.#base, query: { path, user: options.user }, signal: options.signal });
  }

  /**
   * Watches a folder, and what is below it with `recursive`. The promise is
   * fulfilled when the server has begun to answer; a very busy sandbox may begin
   * to watch a moment later. When changes came faster than they were read, one of
   * the type `overflow` says so: look at the folder again.
   *
   * ```ts
   * await using changes = await sbx.files.watch("/workspace");
   * for await (const change of changes) console.log(change.type, change.path);
   * ```
   */
  async watch(path: string, options: FileOptions & { recursive?: boolean } = {}): Promise<EventStream<FileEvent>> {
    const { user, recursive, signal } = options;
    return this.#transport.follow({ path: `${this.#base}/watch`, query: { path, user, recursive }, signal });
  }

  /**
   * Sends a file or a folder of this computer into the sandbox, of any size,
   * with permissions and modification times. `to` is the new path itself; it is
   * not put into a folder that exists there. Symbolic links stay links.
   */
  async upload(from: string | URL, to: string, options: FileOptions = {}): Promise<TransferResult> {
    const at = await local();
    const path = await localPath(from);
    const stats = await at.fs.stat(path);
    if (stats.isDirectory()) return this.#uploadFolder(at, path, to, options);
    const body = () => streamFile(at, path);
    const attributes = { mode: stats.mode & 0o777, modifiedAt: stats.mtime };
    await this.#put(to, body, { ...options, ...attributes });
    return { files: 1, bytes: stats.size, skipped: [] };
  }

  async #uploadFolder(at: Local, from: string, to: string, options: FileOptions): Promise<TransferResult> {
    let result: TransferResult = { files: 0, bytes: 0, skipped: [] };
    const body = (): ReadableStream<Uint8Array> => {
      result = { files: 0, bytes: 0, skipped: [] };
      return streamOf(packFolder(at, from, result));
    };
    const headers = { "Content-Type": "application/x-tar" };
    await this.#transport.empty({ method: "PUT", path: `${this.#base}/archive`, query: { path: to, user: options.user }, headers, body, timeoutSeconds: 0, signal: options.signal });
    return result;
  }

  /**
   * Brings a file or a folder of the sandbox to this computer, of any size, with
   * permissions and modification times. `to` is the new path itself. A file is
   * there whole or not at all; nothing is ever written outside `to`.
   */
  async download(from: string, to: string | URL, options: FileOptions = {}): Promise<TransferResult> {
    const at = await local();
    const path = await localPath(to);
    const answer = await this.#transport.open(this.#get(from, options));
    if (isListing(answer.response)) {
      answer.close();
      return this.#downloadFolder(at, from, path, options);
    }
    const bytes = await writeFile(at, path, answer.chunks(), attributesOf(answer.response));
    return { files: 1, bytes, skipped: [] };
  }

  async #downloadFolder(at: Local, from: string, to: string, options: FileOptions): Promise<TransferResult> {
    const call = { path: `${this.#base}/archive`, query: { path: from, user: options.user }, timeoutSeconds: 0, signal: options.signal };
    const answer = await this.#transport.open(call);
    return new Unpacker(at, to).unpack(answer.chunks());
  }

  /**
   * Returns a folder, or one file, as a tar, with modes, times and links as they are. Names are relative to the folder.
   * The archive was made by a sandbox that you may not trust: unpack it with care, or let `download` do it.
   */
  async readArchive(path: string, options: ArchiveOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { user, gzip, exclude, signal } = options;
    const query = { path, user, gzip: gzip || undefined, exclude };
    const answer = await this.#transport.open({ path: `${this.#base}/archive`, query, timeoutSeconds: 0, signal });
    return streamOf(answer.chunks());
  }

  /**
   * Unpacks a tar, as it is or compressed with gzip, into a folder, which is made where it is missing. What is there
   * is replaced entry by entry; an entry that leads out of the folder is refused.
   */
  async writeArchive(path: string, data: Exclude<FileContent, string>, options: FileOptions = {}): Promise<void> {
    const { user, signal } = options;
    const headers = { "Content-Type": "application/x-tar" };
    await this.#transport.empty({ method: "PUT", path: `${this.#base}/archive`, query: { path, user }, headers, body: toBody(data), timeoutSeconds: 0, signal });
  }

  #put(path: string, body: RawBody, options: WriteOptions): Promise<FileInfo> {
    const { user, mode, modifiedAt, atomic, signal } = options;
    const query = { path, user, mode: mode?.toString(8).padStart(4, "0"), modifiedAt, atomic: atomic || undefined };
    const headers = { "Content-Type": "application/octet-stream" };
    return this.#transport.json({ method: "PUT", path: this.#base, query, headers, body, timeoutSeconds: 0, signal });
  }

  #get(path: string, options: FileOptions): Call {
    return { path: this.#base, query: { path, user: options.user }, timeoutSeconds: 0, signal: options.signal };
  }

  #json<T>(method: "GET" | "POST", verb: string, fields: Record<string, QueryValue>, options: FileOptions): Promise<T> {
    const input = method === "GET" ? { query: fields } : { json: fields };
    return this.#transport.json<T>({ method, path: `${this.#base}/${verb}`, ...input, signal: options.signal });
  }
}

function rangeHeader(offset: number, length: number | undefined): Record<string, string> | undefined {
  for (const n of [offset, length ?? 0]) {
    if (!Number.isSafeInteger(n) || n < 0) throw new RangeError(`offset and length are whole numbers from 0 on, not ${n}`);
  }
  if (offset === 0 && length === undefined) return undefined;
  return { Range: `bytes=${offset}-${length === undefined ? "" : offset + Math.max(length, 1) - 1}` };
}

/** A file comes as bytes, whatever is in it; only a folder comes as JSON. */
function isListing(response: Response): boolean {
  return response.headers.get("content-type")?.startsWith("application/json") ?? false;
}

function attributesOf(response: Response): { mode: number; mtime: number } {
  const info = fromWire<Partial<FileInfo>>(JSON.parse(response.headers.get("x-file-info") ?? "{}"));
  return { mode: parseInt(info.mode ?? "0644", 8) & 0o777, mtime: (info.modifiedAt ?? new Date()).getTime() / 1000 };
}

function notAFile(path: string): IsADirectoryInSandboxError {
  return new IsADirectoryInSandboxError({ code: "is_a_directory", detail: `${path} is a folder, not a file.`, hint: "Use list for what is in it, or download for the whole." });
}

function notAFolder(path: string): NotADirectoryInSandboxError {
  return new NotADirectoryInSandboxError({ code: "not_a_directory", detail: `${path} is a file, not a folder.`, hint: "Use read for its content or stat for what it is." });
}

function isAsyncIterable(value: unknown): value is AsyncIterable<Uint8Array> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

/** @internal Returns what fetch can send. */
export function toBody(content: FileContent): RawBody {
  if (typeof content === "string" || content instanceof ReadableStream || !isAsyncIterable(content)) return content as BodyInit;
  return streamOf(content);
}
