/**
 * A small WebSocket client (RFC 6455) over Node's own http. The client that
 * runtimes bring cannot send an Authorization header everywhere, and Node 20
 * has none.
 *
 * @module
 * @internal
 */
import type { IncomingHttpHeaders, IncomingMessage, RequestOptions } from "node:http";
import type { Socket } from "node:net";
import { ConnectionError, errorFromBody } from "./errors.js";
import { requireNodeModule } from "./runtime.js";

const opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
/** What every server mixes into its answer, by section 1.3 of the RFC. */
const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const maxMessageBytes = 64 << 20;
/** How many unread bytes are held before the socket is told to wait. */
const highWater = 1 << 20;

interface Frame {
  fin: boolean;
  op: number;
  payload: Uint8Array;
}

/** A whole message: text as a string, binary as bytes. */
export type Message = string | Uint8Array;

function concat(parts: Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Cuts a stream of bytes into frames. */
export class FrameReader {
  #held: Uint8Array = new Uint8Array(0);

  /** Adds bytes and returns the frames that are complete. */
  push(chunk: Uint8Array): Frame[] {
    this.#held = this.#held.length === 0 ? chunk : concat([this.#held, chunk]);
    const frames: Frame[] = [];
    for (let frame = this.#next(); frame; frame = this.#next()) frames.push(frame);
    return frames;
  }

  #next(): Frame | undefined {
    const held = this.#held;
    if (held.length < 2) return undefined;
    const [first, second] = held as unknown as [number, number];
    const view = new DataView(held.buffer, held.byteOffset, held.length);
    const extra = { 126: 2, 127: 8 }[second & 127] ?? 0;
    if (held.length < 2 + extra) return undefined;
    const length = extra === 2 ? view.getUint16(2) : extra === 8 ? Number(view.getBigUint64(2)) : second & 127;
    if ((second & 128) !== 0 || (first & 0x70) !== 0) throw broken("the server sent a frame that the protocol forbids");
    if (length > maxMessageBytes) throw broken(`the server sent a frame of ${length} bytes`);
    const end = 2 + extra + length;
    if (held.length < end) return undefined;
    this.#held = held.subarray(end);
    return { fin: (first & 128) !== 0, op: first & 15, payload: held.subarray(2 + extra, end) };
  }
}

/** Returns the bytes of one masked frame, as a client must send it. */
export function maskedFrame(op: number, payload: Uint8Array): Uint8Array {
  const extra = payload.length < 126 ? 0 : payload.length < 65536 ? 2 : 8;
  const head = 2 + extra;
  const out = new Uint8Array(head + 4 + payload.length);
  const view = new DataView(out.buffer);
  out[0] = 128 | op;
  out[1] = 128 | (extra === 0 ? payload.length : extra === 2 ? 126 : 127);
  if (extra === 2) view.setUint16(2, payload.length);
  if (extra === 8) view.setBigUint64(2, BigInt(payload.length));
  const mask = out.subarray(head, head + 4);
  globalThis.crypto.getRandomValues(mask);
  for (let i = 0; i < payload.length; i++) out[head + 4 + i] = (payload[i] as number) ^ (mask[i & 3] as number);
  return out;
}

function broken(why: string, cause?: unknown): ConnectionError {
  return new ConnectionError({ code: "connection_failed", detail: `the connection broke: ${why}.`, cause });
}

/** An open connection. Read its messages from one loop at a time. */
export class WebSocketClient {
  readonly #socket: Socket;
  readonly #frames = new FrameReader();
  readonly #ready: Message[] = [];
  readonly #wake: (() => void)[] = [];
  #parts: Uint8Array[] = [];
  #partsBytes = 0;
  #partsOp: number = opcode.binary;
  #held = 0;
  #ended = false;
  #failure: unknown;
  #release: () => void = () => undefined;
  /** The headers of the answer that opened the connection. */
  readonly headers: IncomingHttpHeaders;
  /** What the server said when it closed the connection. */
  closeReason = "";

  private constructor({ socket, head, response }: Shaken) {
    this.#socket = socket;
    this.headers = response.headers;
    socket.setNoDelay(true);
    socket.setTimeout(0);
    socket.on("data", (chunk: Uint8Array) => this.#onData(chunk));
    socket.on("end", () => this.#end(broken("the server hung up")));
    socket.on("error", (cause) => this.#end(broken(cause.message, cause)));
    socket.on("close", () => this.#end(broken("the server hung up")));
    if (head.length > 0) this.#onData(head);
  }

  /** Opens a connection to an http or https address. The signal ends it, also later. */
  static async connect(url: string, headers: Record<string, string>, signal?: AbortSignal): Promise<WebSocketClient> {
    signal?.throwIfAborted();
    const http = await requireNodeModule<typeof import("node:http")>(url.startsWith("https:") ? "node:https" : "node:http", "a terminal");
    const key = btoa(String.fromCharCode(...globalThis.crypto.getRandomValues(new Uint8Array(16))));
    const upgrade = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key };
    const shaken = await shake(http, url, { headers: { ...headers, ...upgrade }, signal });
    if (shaken.response.headers["sec-websocket-accept"] !== (await acceptFor(key))) {
      shaken.socket.destroy();
      throw broken("the server's answer to the WebSocket key is wrong");
    }
    const client = new WebSocketClient(shaken);
    client.#follow(signal);
    return client;
  }

  #follow(signal: AbortSignal | undefined): void {
    const onAbort = (): void => {
      this.#end(signal?.reason);
      this.#socket.destroy();
    };
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#release = () => signal?.removeEventListener("abort", onAbort);
  }

  /** Yields messages until the connection is closed. A connection that breaks throws. */
  async *messages(): AsyncGenerator<Message, void, undefined> {
    for (;;) {
      const message = this.#ready.shift();
      if (message !== undefined) {
        this.#held -= message.length;
        if (this.#held < highWater) this.#socket.resume();
        yield message;
      } else if (this.#ended) {
        if (this.#failure) throw this.#failure;
        return;
      } else {
        await new Promise<void>((resolve) => this.#wake.push(resolve));
      }
    }
  }

  /** Sends a message and waits until the operating system has taken it. */
  async send(message: Message): Promise<void> {
    const text = typeof message === "string";
    await this.#write(text ? opcode.text : opcode.binary, text ? new TextEncoder().encode(message) : message);
  }

  /** Says goodbye and hangs up. Closing twice is fine. */
  async close(): Promise<void> {
    if (this.#ended) return;
    this.#end(undefined);
    await this.#write(opcode.close, new Uint8Array([0x03, 0xe8])).catch(() => undefined);
    this.#socket.destroy();
  }

  #write(op: number, payload: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#ended && op !== opcode.close) reject(this.#failure ?? broken("it has been closed"));
      else this.#socket.write(maskedFrame(op, payload), (error) => (error ? reject(broken(error.message, error)) : resolve()));
    });
  }

  #onData(chunk: Uint8Array): void {
    try {
      for (const frame of this.#frames.push(chunk)) this.#onFrame(frame);
    } catch (error) {
      this.#end(error);
      this.#socket.destroy();
    }
  }

  #onFrame(frame: Frame): void {
    switch (frame.op) {
      case opcode.text:
      case opcode.binary:
      case opcode.continuation:
        return this.#onPart(frame);
      case opcode.ping:
        void this.#write(opcode.pong, frame.payload).catch(() => undefined);
        return;
      case opcode.close:
        return this.#onClose(frame.payload);
    }
  }

  #onPart({ fin, op, payload }: Frame): void {
    if (op !== opcode.continuation) this.#partsOp = op;
    this.#parts.push(payload);
    this.#partsBytes += payload.length;
    if (this.#partsBytes > maxMessageBytes) throw broken("the server sent an endless message");
    if (!fin) return;
    const whole = concat(this.#parts);
    this.#parts = [];
    this.#partsBytes = 0;
    this.#deliver(this.#partsOp === opcode.text ? new TextDecoder().decode(whole) : whole);
  }

  #deliver(message: Message): void {
    this.#ready.push(message);
    this.#held += message.length;
    if (this.#held >= highWater) this.#socket.pause();
    this.#wakeAll();
  }

  #onClose(payload: Uint8Array): void {
    const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
    const code = payload.length >= 2 ? view.getUint16(0) : 1005;
    this.closeReason = new TextDecoder().decode(payload.subarray(2));
    void this.#write(opcode.close, payload).catch(() => undefined);
    this.#end(code === 1000 || code === 1005 ? undefined : broken(this.closeReason || `the server closed it with code ${code}`));
    this.#socket.destroySoon();
  }

  #end(failure: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = failure;
    this.#release();
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }
}

interface Shaken {
  socket: Socket;
  head: Uint8Array;
  response: IncomingMessage;
}

function shake(http: typeof import("node:http"), url: string, options: RequestOptions): Promise<Shaken> {
  return new Promise((resolve, reject) => {
    const { signal } = options;
    const request = http.request(url, { ...options, agent: false });
    request.on("upgrade", (response, socket, head) => resolve({ socket: socket as Socket, head, response }));
    request.on("response", (response) => refusal(response).then(reject, reject));
    request.on("error", (cause) => reject(signal?.aborted ? signal.reason : broken(cause.message, cause)));
    request.end();
  });
}

async function refusal(response: IncomingMessage): Promise<Error> {
  let body = "";
  for await (const chunk of response.setEncoding("utf8")) body += chunk as string;
  const headers = new Headers();
  for (const [name, value] of Object.entries(response.headers)) headers.set(name, String(value));
  return errorFromBody(response.statusCode ?? 0, headers, body);
}

async function acceptFor(key: string): Promise<string> {
  const digest = await globalThis.crypto.subtle.digest("SHA-1", new TextEncoder().encode(key + guid));
  return btoa(String.fromCharCode(...new Uint8Array(digest)));
}
