import type { AddressInfo, Server, Socket } from "node:net";
import { BothyError } from "./errors.js";
import { requireNodeModule } from "./runtime.js";
import type { CallOptions, Transport } from "./transport.js";
import { WebSocketClient } from "./websocket.js";

/** Options of {@link Sandbox.forward}. */
export interface ForwardOptions extends CallOptions {
  /** The port of this computer to listen on. Default: any free one. */
  localPort?: number;
  /** The address of this computer to listen on. Default `127.0.0.1`. */
  localHost?: string;
}

/** A port of this computer that leads to a port of a sandbox. */
export class Forward {
  /** Where it listens. */
  readonly host: string;
  /** Where it listens. */
  readonly port: number;
  /** Why the last connection that was closed at once could not be made. In Node it is also a warning of the process. */
  error?: Error;
  readonly #server: Server;
  readonly #sockets: Set<Socket>;

  private constructor(server: Server, sockets: Set<Socket>) {
    const address = server.address() as AddressInfo;
    this.host = address.address;
    this.port = address.port;
    this.#server = server;
    this.#sockets = sockets;
  }

  /**
   * Opens one; users call {@link Sandbox.forward}.
   *
   * @internal
   */
  static async open(transport: Transport, path: string, options: ForwardOptions): Promise<Forward> {
    const net = await requireNodeModule<typeof import("node:net")>("node:net", "forwarding a port");
    const sockets = new Set<Socket>();
    let forward: Forward | undefined;
    const server = net.createServer((socket) => {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
      carry(transport, path, socket).catch((error: unknown) => {
        if (error instanceof BothyError && forward) {
          forward.error = error;
          process.emitWarning(`a connection to the forwarded port was closed: ${error.message}`);
        }
        socket.destroy();
      });
    });
    await listen(server, options);
    forward = new Forward(server, sockets);
    options.signal?.addEventListener("abort", () => void forward.close(), { once: true });
    return forward;
  }

  /** The address as a URL for HTTP. */
  get url(): string {
    return `http://${this.host.includes(":") ? `[${this.host}]` : this.host}:${this.port}`;
  }

  /** Stops listening and ends the connections. */
  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  /** Stops listening; `await using` calls it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function listen(server: Server, { localPort = 0, localHost = "127.0.0.1", signal }: ForwardOptions): Promise<void> {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(localPort, localHost, resolve);
  });
}

/** Carries the bytes of one connection both ways until one side is done. */
async function carry(transport: Transport, path: string, socket: Socket): Promise<void> {
  const gone = new AbortController();
  socket.on("close", () => gone.abort());
  const { url, headers } = await transport.address(path);
  const tunnel = await WebSocketClient.connect(url, headers, gone.signal);
  await Promise.all([inward(socket, tunnel), outward(tunnel, socket)]);
}

async function inward(socket: Socket, tunnel: WebSocketClient): Promise<void> {
  for await (const chunk of socket) await tunnel.send(chunk as Uint8Array);
}

async function outward(tunnel: WebSocketClient, socket: Socket): Promise<void> {
  for await (const message of tunnel.messages()) {
    if (!socket.write(message)) await new Promise((resolve) => socket.once("drain", resolve));
  }
  socket.end();
}
