/**
 * Server-sent events over a fetch body.
 *
 * @module
 * @internal
 */

/** One event as it came. */
export interface ServerEvent {
  event?: string;
  id?: string;
  data: string;
}

function parseBlock(lines: string[]): ServerEvent | undefined {
  const out: ServerEvent = { data: "" };
  const data: string[] = [];
  for (const line of lines) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") data.push(value);
    else if (field === "event") out.event = value;
    else if (field === "id") out.id = value;
  }
  out.data = data.join("\n");
  return data.length > 0 ? out : undefined;
}

/**
 * Splits text into lines that end with LF, CRLF or CR, and keeps the unfinished
 * rest. A CR at the very end waits, because an LF may follow.
 */
class Lines {
  #rest = "";

  *push(text: string): Generator<string> {
    this.#rest += text;
    let start = 0;
    for (const end of this.#rest.matchAll(/\r\n|\n|\r(?!$)/g)) {
      yield this.#rest.slice(start, end.index);
      start = end.index + end[0].length;
    }
    this.#rest = this.#rest.slice(start);
  }
}

/** Reads chunks of a body until it ends. Leaving the loop cancels the body. */
export async function* readChunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // A body that failed cannot be cancelled, and its error has been thrown already.
    await reader.cancel().catch(() => undefined);
  }
}

/** Yields the events of a body. Comments, which keep the connection open, are skipped. */
export async function* readEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  const decoder = new TextDecoder();
  const lines = new Lines();
  let block: string[] = [];
  for await (const chunk of chunks) {
    for (const line of lines.push(decoder.decode(chunk, { stream: true }))) {
      if (line !== "") {
        block.push(line);
        continue;
      }
      const event = parseBlock(block);
      block = [];
      if (event) yield event;
    }
  }
}
