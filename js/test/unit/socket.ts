import type { Order } from "./fake.js";

/** A frame of the client, unmasked. */
interface Frame {
  op: number;
  payload: Buffer;
}

/** The server's end of a WebSocket, whose bytes are the test's to send, so that it can misbehave. */
export class ServerSocket {
  readonly target: string;
  readonly headers: Record<string, string | undefined>;
  /** Resolves when the client hung up. */
  readonly closed: Promise<void>;
  readonly #order: Order;
  readonly #frames: Frame[] = [];
  readonly #waiting: ((frame: Frame) => void)[] = [];
  #close: () => void = () => undefined;

  constructor(target: string, headers: Record<string, string | undefined>, order: Order) {
    this.target = target;
    this.headers = headers;
    this.#order = order;
    this.closed = new Promise((resolve) => (this.#close = resolve));
  }

  /** Says yes to the upgrade. */
  accept(headers: Record<string, string> = {}): this {
    this.#order("upgrade", { headers });
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
    this.#order("write", { data: Buffer.concat(frames).toString("base64") });
  }

  /** Closes with a code and a reason. */
  close(code: number, reason = ""): void {
    this.send(ServerSocket.frame(8, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)])));
  }

  /** Breaks the connection. */
  destroy(): void {
    this.#order("drop");
  }

  /** Waits for the next frame of the client. */
  async receive(): Promise<Frame> {
    return this.#frames.shift() ?? new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Takes a frame of the client, or nothing when it hung up. */
  hear(frame: Frame | undefined): void {
    const waiting = frame && this.#waiting.shift();
    if (!frame) this.#close();
    else if (waiting) waiting(frame);
    else this.#frames.push(frame);
  }
}
