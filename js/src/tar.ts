/**
 * Reading and writing tar archives as streams of bytes (POSIX 1003.1 pax).
 *
 * @module
 * @internal
 */

const block = 512;

/** The kinds of entries that are moved. */
export type TarType = "file" | "directory" | "symlink" | "link" | "other";

/** The head of one entry. */
export interface TarHead {
  name: string;
  type: TarType;
  mode: number;
  /** Seconds since 1970. */
  mtime: number;
  size: number;
  linkTarget?: string;
}

/** One entry that is read. Its content must be read to the end, or left unread, before the next. */
export interface TarEntry extends TarHead {
  content: AsyncIterable<Uint8Array>;
}

const typeFlags: Record<string, TarType> = { "0": "file", "\0": "file", "7": "file", "1": "link", "2": "symlink", "5": "directory" };
const flags: Partial<Record<TarType, string>> = { file: "0", symlink: "2", directory: "5" };
const encoder = new TextEncoder();
const decoder = new TextDecoder();

function padding(size: number): number {
  return (block - (size % block)) % block;
}

function octal(value: number, width: number): string {
  return `${value.toString(8).padStart(width - 1, "0")}\0`;
}

function put(header: Uint8Array, at: number, text: string, width: number): void {
  header.set(encoder.encode(text).subarray(0, width), at);
}

function rawHeader(name: string, flag: string, head: Pick<TarHead, "mode" | "mtime" | "size" | "linkTarget">): Uint8Array {
  const header = new Uint8Array(block);
  put(header, 0, name, 100);
  put(header, 100, octal(head.mode & 0o7777, 8), 8);
  put(header, 108, octal(0, 8), 8);
  put(header, 116, octal(0, 8), 8);
  put(header, 124, head.size < 0o77777777777 ? octal(head.size, 12) : octal(0, 12), 12);
  put(header, 136, octal(Math.max(0, Math.floor(head.mtime)), 12), 12);
  put(header, 148, " ".repeat(8), 8);
  put(header, 156, flag, 1);
  put(header, 157, head.linkTarget ?? "", 100);
  put(header, 257, "ustar\u000000", 8);
  const sum = header.reduce((total, byte) => total + byte, 0);
  put(header, 148, `${sum.toString(8).padStart(6, "0")}\0 `, 8);
  return header;
}

function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const length = encoder.encode(rest).length;
  let total = length + String(length).length;
  total = length + String(total).length;
  return `${total}${rest}`;
}

function paxRecords(head: TarHead): string {
  let records = "";
  if (encoder.encode(head.name).length > 100) records += paxRecord("path", head.name);
  if (head.linkTarget && encoder.encode(head.linkTarget).length > 100) records += paxRecord("linkpath", head.linkTarget);
  if (head.size >= 0o77777777777) records += paxRecord("size", String(head.size));
  if (!Number.isInteger(head.mtime)) records += paxRecord("mtime", head.mtime.toFixed(3));
  return records;
}

/** Returns the header blocks of an entry. */
export function tarHeader(head: TarHead): Uint8Array {
  const flag = flags[head.type];
  if (!flag) throw new TypeError(`a tar entry of type ${head.type} cannot be written`);
  const header = rawHeader(head.name, flag, head);
  const records = encoder.encode(paxRecords(head));
  if (records.length === 0) return header;
  const out = new Uint8Array(block + records.length + padding(records.length) + block);
  out.set(rawHeader("PaxHeader", "x", { mode: 0o644, mtime: 0, size: records.length }), 0);
  out.set(records, block);
  out.set(header, out.length - block);
  return out;
}

/** Returns the zeros that fill an entry's last block. */
export function tarPadding(size: number): Uint8Array {
  return new Uint8Array(padding(size));
}

/** The two empty blocks that end an archive. */
export const tarEnd = new Uint8Array(2 * block);

/** Hands out a stream of bytes in pieces of the size that is asked for. */
class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #held: Uint8Array = new Uint8Array(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Returns up to max bytes, at least one, or undefined at the end. */
  async some(max: number): Promise<Uint8Array | undefined> {
    while (this.#held.length === 0) {
      const { done, value } = await this.#source.next();
      if (done) return undefined;
      this.#held = value;
    }
    const piece = this.#held.subarray(0, max);
    this.#held = this.#held.subarray(piece.length);
    return piece;
  }

  /** Returns exactly size bytes, or undefined when the source has ended before the first. */
  async exactly(size: number): Promise<Uint8Array | undefined> {
    const out = new Uint8Array(size);
    for (let at = 0; at < size; ) {
      const piece = await this.some(size - at);
      if (!piece && at === 0) return undefined;
      if (!piece) throw cut();
      out.set(piece, at);
      at += piece.length;
    }
    return out;
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }
}

function cut(): Error {
  return new Error("the archive ends in the middle of an entry");
}

function text(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return decoder.decode(end < 0 ? bytes : bytes.subarray(0, end));
}

function number(bytes: Uint8Array): number {
  if (((bytes[0] as number) & 128) === 0) return parseInt(text(bytes).trim() || "0", 8);
  return bytes.subarray(1).reduce((value, byte) => value * 256 + byte, (bytes[0] as number) & 127);
}

function parseHeader(header: Uint8Array): TarHead & { flag: string } {
  const at = (start: number, width: number): Uint8Array => header.subarray(start, start + width);
  const spaces = at(148, 8).slice();
  const sum = header.reduce((total, byte) => total + byte, 0) - spaces.reduce((total, byte) => total + byte, 0) + 8 * 32;
  if (number(spaces) !== sum) throw new Error("the archive is damaged: a header's checksum is wrong");
  const flag = String.fromCharCode(header[156] as number);
  const prefix = text(at(257, 5)) === "ustar" && header[262] === 0 ? text(at(345, 155)) : "";
  const name = text(at(0, 100));
  return {
    flag,
    type: typeFlags[flag] ?? "other",
    name: prefix ? `${prefix}/${name}` : name,
    mode: number(at(100, 8)),
    size: number(at(124, 12)),
    mtime: number(at(136, 12)),
    linkTarget: text(at(157, 100)) || undefined,
  };
}

function parsePax(records: Uint8Array): Partial<TarHead> {
  const out: Partial<TarHead> = {};
  for (let at = 0; at < records.length; ) {
    const space = records.indexOf(32, at);
    const length = Number(decoder.decode(records.subarray(at, space)));
    if (space < 0 || !(length > 0)) throw new Error("the archive is damaged: an extended header cannot be read");
    const record = decoder.decode(records.subarray(space + 1, at + length - 1));
    const [key, value] = [record.slice(0, record.indexOf("=")), record.slice(record.indexOf("=") + 1)];
    if (key === "path") out.name = value;
    else if (key === "linkpath") out.linkTarget = value;
    else if (key === "size") out.size = Number(value);
    else if (key === "mtime") out.mtime = Number(value);
    at += length;
  }
  return out;
}

/** A header that says something about the next one, by its flag. */
const extensions: Record<string, (content: Uint8Array) => Partial<TarHead>> = {
  x: parsePax,
  g: () => ({}),
  L: (content) => ({ name: text(content) }),
  K: (content) => ({ linkTarget: text(content) }),
};

async function* contentOf(reader: ByteReader, left: { bytes: number }): AsyncGenerator<Uint8Array, void, undefined> {
  while (left.bytes > 0) {
    const piece = await reader.some(left.bytes);
    if (!piece) throw cut();
    left.bytes -= piece.length;
    yield piece;
  }
}

async function skip(reader: ByteReader, size: number): Promise<void> {
  for await (const _ of contentOf(reader, { bytes: size }));
}

/** The headers that come before an entry are small; a larger one is an attack. */
const maxExtension = 1 << 20;

/** Yields the entries of an archive. */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry, void, undefined> {
  const reader = new ByteReader(source);
  let extra: Partial<TarHead> = {};
  try {
    for (let raw = await reader.exactly(block); raw?.some((byte) => byte !== 0); raw = await reader.exactly(block)) {
      const { flag, ...head } = parseHeader(raw);
      const extension = extensions[flag];
      if (extension) {
        if (head.size > maxExtension) throw new Error(`the archive has an extended header of ${head.size} bytes`);
        Object.assign(extra, extension((await reader.exactly(head.size)) ?? new Uint8Array(0)));
        await skip(reader, padding(head.size));
        continue;
      }
      const entry = { ...head, ...extra };
      extra = {};
      const left = { bytes: entry.size };
      yield { ...entry, content: contentOf(reader, left) };
      await skip(reader, left.bytes + padding(entry.size));
    }
    while (await reader.some(1 << 20)); // So that the sender is not cut off in its last, empty blocks.
  } finally {
    await reader.close();
  }
}
