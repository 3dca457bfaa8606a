import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

/** The server's end of a WebSocket, byte by byte, so that tests can misbehave. */
export class ServerSocket {
  readonly request: IncomingMessage;
  readonly socket: Socket;
  #held: Buffer;
  readonly #frames: { op: number; payload: Buffer }[] = [];
  readonly #waiting: ((frame: { op: number; payload: Buffer }) => void)[] = [];
  readonly closed: Promise<void>;

  constructor(request: IncomingMessage, socket: Socket, head: Buffer) {
    this.request = request;
    this.socket = socket;
    this.#held = head;
    this.closed = new Promise((resolve) => socket.on("close", () => resolve()));
    socket.on("error", () => undefined);
    socket.on("end", () => socket.end());
    socket.on("data", (chunk: Buffer) => this.#onData(chunk));
  }

  /** Says yes to the upgrade. */
  accept(headers: Record<string, string> = {}): this {
    const key = createHash("sha1").update(`${this.request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
    const lines = Object.entries({ Upgrade: "websocket", Connection: "Upgrade", "Sec-WebSocket-Accept": key, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
    this.socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`);
    return this;
  }

  /** Returns the bytes of one frame, as a server sends it. */
  static frame(op: number, payload: Uint8Array | string, fin = true): Buffer {
    const bytes = Buffer.from(payload);
    const head = [(fin ? 128 : 0) | op];
    if (bytes.length < 126) head.push(bytes.length);
    else if (bytes.length < 65536) head.push(126, bytes.length >> 8, bytes.length & 255);
    else head.push(127, 0, 0, 0, 0, ...[24, 16, 8, 0].map((shift) => (bytes.length >> shift) & 255));
    return Buffer.concat([Buffer.from(head), bytes]);
  }

  /** Sends frames in one write. */
  send(...frames: Buffer[]): void {
    this.socket.write(Buffer.concat(frames));
  }

  /** Closes with a code and a reason. */
  close(code: number, reason = ""): void {
    this.send(ServerSocket.frame(8, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)])));
  }

  /** Waits for the next frame of the client, unmasked. */
  async receive(): Promise<{ op: number; payload: Buffer }> {
    return this.#frames.shift() ?? new Promise((resolve) => this.#waiting.push(resolve));
  }

  #onData(chunk: Buffer): void {
    this.#held = Buffer.concat([this.#held, chunk]);
    for (let frame = this.#next(); frame; frame = this.#next()) {
      const waiting = this.#waiting.shift();
      if (waiting) waiting(frame);
      else this.#frames.push(frame);
    }
  }

  #next(): { op: number; payload: Buffer } | undefined {
    if (this.#held.length < 2) return undefined;
    const second = this.#held.readUInt8(1);
    if ((second & 128) === 0) throw new Error("the client sent a frame without a mask");
    let [length, at] = [second & 127, 2];
    if (length === 126) [length, at] = [this.#held.length < 4 ? Infinity : this.#held.readUInt16BE(2), 4];
    else if (length === 127) [length, at] = [this.#held.length < 10 ? Infinity : Number(this.#held.readBigUInt64BE(2)), 10];
    if (this.#held.length < at + 4 + length) return undefined;
    const mask = this.#held.subarray(at, at + 4);
    const payload = Buffer.from(this.#held.subarray(at + 4, at + 4 + length)).map((byte, i) => byte ^ (mask[i & 3] as number)) as Buffer;
    const op = this.#held.readUInt8(0) & 15;
    this.#held = this.#held.subarray(at + 4 + length);
    return { op, payload: Buffer.from(payload) };
  }
}
