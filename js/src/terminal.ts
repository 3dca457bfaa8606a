import { ConnectionError } from "./errors.js";
import type { Command } from "./exec.js";
import type { CallOptions, Transport } from "./transport.js";
import { BrowserSocket, inBrowser } from "./browsersocket.js";
import { WebSocketClient } from "./websocket.js";

/** How a terminal is opened. */
export interface TerminalOptions extends CallOptions {
  /** What runs in it. Default: a login shell. */
  command?: Command;
  cwd?: string;
  env?: Record<string, string>;
  user?: string;
  /** Default 80. */
  cols?: number;
  /** Default 24. */
  rows?: number;
  /** Joins the terminal of this process, which was kept or whose connection broke less than a minute ago, instead of opening one. */
  process?: number;
  /** When joining: how many bytes of its output have arrived; what is held behind them is sent. */
  from?: number;
  /** Leaves what runs in it running when the terminal is closed or the connection ends, to be joined at any time. Its process then has the tag `kept`, and ends by itself or by a signal. */
  keep?: boolean;
}

/** The server takes frames of up to a mebibyte. */
const maxFrameBytes = 256 << 10;

function shellLine(command: Command | undefined): string | undefined {
  if (command === undefined || typeof command === "string") return command;
  return `exec ${command.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ")}`;
}

function parseExitCode(reason: string): number | undefined {
  try {
    return (JSON.parse(reason) as { exit_code?: number }).exit_code;
  } catch {
    return undefined;
  }
}

/**
 * An open terminal (PTY). Loop over it for what it prints.
 *
 * ```ts
 * const terminal = await sbx.terminal({ cols: 120, rows: 40 });
 * await terminal.write("ls -l\n");
 * for await (const bytes of terminal) process.stdout.write(bytes);
 * ```
 */
export class Terminal implements AsyncIterable<Uint8Array> {
  /** The process that it runs. */
  readonly pid: number;
  readonly #socket: WebSocketClient | BrowserSocket;

  private constructor(socket: WebSocketClient | BrowserSocket, pid: number) {
    this.#socket = socket;
    this.pid = pid;
  }

  /**
   * Opens one; users call {@link Sandbox.terminal}.
   *
   * @internal
   */
  static async open(transport: Transport, sandboxPath: string, options: TerminalOptions): Promise<Terminal> {
    const { signal, command, ...query } = options;
    const asked = { ...query, command: shellLine(command) };
    if (inBrowser()) {
      // A browser does not show the headers of the answer.
      const { url } = await transport.address(`${sandboxPath}/terminal`, { ...asked, announce: true });
      const socket = await BrowserSocket.connect(url, signal);
      const first = await socket.first();
      return new Terminal(socket, (JSON.parse(first) as { process: number }).process);
    }
    const { url, headers } = await transport.address(`${sandboxPath}/terminal`, asked);
    const socket = await WebSocketClient.connect(url, headers, signal);
    return new Terminal(socket, Number(socket.headers["x-process-id"] ?? 0));
  }

  /** The exit code of that process, once the loop over the output has ended. */
  get exitCode(): number | undefined {
    return parseExitCode(this.#socket.closeReason);
  }

  /** Types something. */
  async write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let at = 0; at < bytes.length; at += maxFrameBytes) await this.#socket.send(bytes.subarray(at, at + maxFrameBytes));
  }

  /** Sets the size of the window. */
  async resize(cols: number, rows: number): Promise<void> {
    await this.#socket.send(JSON.stringify({ resize: { cols, rows } }));
  }

  /** Yields what is printed, until the process ends or the terminal is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const message of this.#socket.messages()) if (typeof message !== "string") yield message;
  }

  /** Discards what is printed until the process ends, and returns its exit code. */
  async wait(): Promise<number> {
    for await (const _ of this);
    if (this.exitCode !== undefined) return this.exitCode;
    throw new ConnectionError({ code: "connection_failed", detail: "the terminal was closed before its process ended." });
  }

  /** Hangs up. */
  async close(): Promise<void> {
    await this.#socket.close();
  }

  /** Hangs up; `await using` calls it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
