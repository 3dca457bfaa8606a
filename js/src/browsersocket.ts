/**
 * The browser's own WebSocket, which brings the visitor's login along, in the form of
 * {@link WebSocketClient}.
 *
 * @module
 * @internal
 */
import { ConnectionError } from "./errors.js";
import type { Message } from "./websocket.js";

/** Reports whether this is a page, and not Node, where a key can be sent. */
export function inBrowser(): boolean {
  return !globalThis.process?.versions?.node && typeof globalThis.document !== "undefined";
}

function broken(detail: string): ConnectionError {
  return new ConnectionError({ code: "connection_failed", detail: `the connection to the terminal broke: ${detail}.` });
}

/** One connection. Its output is held until it is read. */
export class BrowserSocket {
  /** What the server said at the end. */
  closeReason = "";
  readonly #socket: WebSocket;
  #ready: Message[] = [];
  #wake: (() => void)[] = [];
  #ended = false;
  #failure: Error | undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      this.#ready.push(typeof data === "string" ? data : new Uint8Array(data));
      this.#wakeAll();
    };
    socket.onclose = ({ code, reason }) => {
      this.closeReason = reason;
      this.#ended = true;
      if (code !== 1000 && code !== 1005) this.#failure = broken(reason || `code ${code}`);
      this.#wakeAll();
    };
  }

  /** Connects, or says that it could not: a browser does not tell a page why. */
  static connect(url: string, signal?: AbortSignal): Promise<BrowserSocket> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url.replace(/^http/, "ws"));
      socket.binaryType = "arraybuffer";
      const connection = new BrowserSocket(socket);
      socket.onopen = () => resolve(connection);
      socket.onerror = () => reject(broken("it could not be opened"));
      signal?.addEventListener("abort", () => (socket.close(), reject(signal.reason)), { once: true });
    });
  }

  /** Returns the first message, which is text. */
  async first(): Promise<string> {
    while (this.#ready.length === 0) {
      if (this.#ended) throw this.#failure ?? broken("it ended before it began");
      await this.#change();
    }
    return String(this.#ready.shift());
  }

  /** Yields what arrives until the end. */
  async *messages(): AsyncGenerator<Message, void, undefined> {
    for (;;) {
      for (const message of this.#ready.splice(0)) yield message;
      if (this.#ready.length > 0) continue;
      if (this.#failure) throw this.#failure;
      if (this.#ended) return;
      await this.#change();
    }
  }

  async send(message: Message): Promise<void> {
    if (this.#socket.readyState !== WebSocket.OPEN) throw this.#failure ?? broken("it has been closed");
    this.#socket.send(message as string | Uint8Array<ArrayBuffer>);
  }

  async close(): Promise<void> {
    this.#socket.close(1000);
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  #wakeAll(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }
}
