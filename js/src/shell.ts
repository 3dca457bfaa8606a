import { ConnectionError } from "./errors.js";
import { ExecResult, type ExecResultFields, type WireExecEvent } from "./exec.js";
import { BoundedText, Decoder } from "./output.js";
import type { CallOptions, Transport } from "./transport.js";

/** How a command in a {@link Shell} is run. */
export interface ShellExecOptions extends CallOptions {
  /** Ends the command, but not the shell, after this long. */
  timeoutSeconds?: number;
  /** Called with every piece of standard output as it arrives. */
  onStdout?: (text: string) => void;
  /** Called with every piece of standard error as it arrives. */
  onStderr?: (text: string) => void;
}

/** A command that has ended in a {@link Shell}. */
export class ShellResult extends ExecResult {
  /** True if the shell itself has ended, for example by `exit`. The next command gets a new one. */
  readonly ended: boolean;

  constructor(fields: Omit<ExecResultFields, "pid"> & { ended?: boolean }) {
    super({ ...fields, pid: 0 });
    this.ended = fields.ended ?? false;
  }
}

/**
 * One bash whose directory and variables persist from command to command. Commands in
 * one shell run one after the other, and as the sandbox's user.
 */
export class Shell {
  /** The id by which {@link Sandbox.getShell} finds it again. */
  readonly id: string;
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal Use {@link Sandbox.shell}. */
  constructor(transport: Transport, sandboxPath: string, id: string) {
    this.id = id;
    this.#transport = transport;
    this.#path = `${sandboxPath}/shells/${encodeURIComponent(id)}`;
  }

  /** Runs a command to its end; what it sets stays for the next. */
  async exec(command: string, options: ShellExecOptions = {}): Promise<ShellResult> {
    const { timeoutSeconds, signal } = options;
    const call = {
      method: "POST" as const,
      path: `${this.#path}/exec`,
      json: { command, timeoutSeconds },
      timeoutSeconds: timeoutSeconds ? timeoutSeconds + 30 : 0,
      repeatable: false,
      keyed: true,
      signal,
    };
    if (!options.onStdout && !options.onStderr) return new ShellResult(await this.#transport.json<ExecResultFields>(call));
    return follow(this.#transport.events<WireExecEvent & { ended?: boolean }>(call), options);
  }

  /** Ends the running command, but not the shell. Throws a {@link ConflictError} if there is none. */
  async interrupt(options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "POST", path: `${this.#path}/interrupt`, ...options });
  }

  /** Makes the shell as new, and ends what it started. */
  async restart(options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "POST", path: `${this.#path}/restart`, ...options });
  }

  /** Ends the shell, and what it started. */
  async close(options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: this.#path, ...options });
  }

  /** Ends the shell; `await using` calls it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

async function follow(events: AsyncIterable<WireExecEvent & { ended?: boolean }>, options: ShellExecOptions): Promise<ShellResult> {
  const texts = { stdout: new BoundedText(), stderr: new BoundedText() };
  const callbacks = { stdout: options.onStdout, stderr: options.onStderr };
  const decoder = new Decoder();
  for await (const event of events) {
    if (event.isFinal) {
      const truncated = event.truncated || texts.stdout.truncated || texts.stderr.truncated;
      const { exitCode = 0, durationMs = 0, ...rest } = event;
      return new ShellResult({ ...rest, exitCode, durationMs, stdout: texts.stdout.text(), stderr: texts.stderr.text(), truncated });
    }
    if (!event.stream) continue;
    const text = decoder.text(event.stream, Decoder.bytes(event.data ?? "", event.encoding));
    texts[event.stream].add(text);
    callbacks[event.stream]?.(text);
  }
  throw new ConnectionError({ code: "connection_failed", detail: "the stream of the command's output ended before the command did." });
}
