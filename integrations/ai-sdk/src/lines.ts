import { type Sandbox } from "bothy";

/** Lines of a text file, numbered from 1. */
export interface Lines {
  content: string;
  firstLine: number;
  lastLine: number;
  /** The file continues behind these lines. */
  more: boolean;
}

/** Reads lines of a text file of any size, as many as `limit` bytes hold. Throws where it is no text. */
export async function readLines(sandbox: Sandbox, path: string, from: number, count: number, limit: number, signal?: AbortSignal): Promise<Lines> {
  const stream = await sandbox.files.readStream(path, { signal });
  const kept: string[] = [];
  let [number, room, more] = [0, limit, false];
  for await (const line of linesOf(stream, path, limit)) {
    if (++number < from) continue;
    room -= Buffer.byteLength(line);
    more = kept.length === count || (room < 0 && kept.length > 0);
    if (more) break; // leaving the loop cancels the stream
    kept.push(line);
  }
  if (kept.length === 0 && from > 1) throw new Error(`${path} has ${number} lines: line ${from} is behind its end.`);
  return { content: kept.join(""), firstLine: from, lastLine: from + kept.length - 1, more };
}

/** Yields the lines of a stream, each with its end. One that is longer than `limit` is cut, with a mark. */
async function* linesOf(stream: ReadableStream<Uint8Array>, path: string, limit: number): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let [line, dropped] = ["", 0];
  const add = (text: string): void => {
    const room = Math.max(0, limit - line.length);
    line += text.slice(0, room);
    dropped += Math.max(0, text.length - room);
  };
  const take = (): string => {
    const whole = dropped > 0 ? `${line}\n[${dropped} characters of this line left out]\n` : line;
    [line, dropped] = ["", 0];
    return whole;
  };
  for await (const chunk of stream) {
    const pieces = decode(decoder, chunk, path).split("\n");
    const last = pieces.pop() as string;
    for (const piece of pieces) {
      add(`${piece}\n`);
      yield take();
    }
    add(last);
  }
  add(decode(decoder, undefined, path));
  if (line !== "") yield take();
}

function decode(decoder: TextDecoder, chunk: Uint8Array | undefined, path: string): string {
  try {
    const text = decoder.decode(chunk, { stream: chunk !== undefined });
    if (!text.includes("\0")) return text;
  } catch {
    // told below
  }
  throw new Error(`${path} is a binary file, not UTF-8 text. Look at it with commands, such as file, xxd or base64.`);
}
