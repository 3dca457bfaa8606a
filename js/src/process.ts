import { ConnectionError, InvalidArgumentError, SandboxNotReadyError, SandboxPausedError } from "./errors.js";
import { type ExecEvent, type ExecResult, ResultCollector, toExecEvent, type WireExecEvent } from "./exec.js";
import { Decoder, toBase64 } from "./output.js";
import type { CallOptions, Transport } from "./transport.js";

/** A process: one that was started through the API or, where all are listed, any. */
export interface ProcessInfo {
  pid: number;
  command: string[];
  cwd?: string;
  env?: Record<string, string>;
  user?: string;
  tag?: string;
  /** It has a terminal, which can be joined. */
  terminal?: boolean;
  running: boolean;
  /** Undefined while it runs. */
  exitCode?: number;
  timedOut?: boolean;
  oomKilled?: boolean;
  /** The byte offset of the oldest output that is still held. */
  outputStart: number;
  /** The byte offset after the newest output. */
  outputEnd: number;
  /** It was not started through the API: nothing is known of its output and end. */
  unmanaged?: boolean;
  /** What it belongs to. This and what follows are set of those that run, where all are listed. */
  parentPid?: number;
  startedAt?: Date;
  /** The CPU time that it has used. */
  cpuSeconds?: number;
  /** The memory that it uses. */
  memoryBytes?: number;
  /** The TCP ports on which it listens. */
  ports?: number[];
}

const signals = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGABRT: 6,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGWINCH: 28,
} as const;

/** The name of a signal. */
export type SignalName = keyof typeof signals;

function signalNumber(signal: SignalName | number): number {
  const number = typeof signal === "number" ? signal : signals[signal];
  if (Number.isInteger(number) && number > 0 && number < 65) return number;
  throw new InvalidArgumentError({ code: "invalid_argument", detail: `${String(signal)} is not a signal.`, hint: "Give a name such as SIGINT, or its number." });
}

/** How often a broken stream is joined again without a byte of progress in between. */
const maxRejoins = 10;
/** How long to wait, as after so many failures, before looking whether a paused sandbox runs again. */
const pausedLook = 2;

/**
 * A process in the background of a sandbox. It outlives this object and this
 * program. Loop over it to follow its output from the start to its end: when the
 * connection breaks, the loop continues at the byte where it was.
 */
export class Process implements AsyncIterable<ExecEvent> {
  /** The process id inside the sandbox. */
  readonly pid: number;
  readonly #transport: Transport;
  readonly #path: string;
  #result: ExecResult | undefined;

  /** @internal Use {@link Sandbox.spawn} or {@link Sandbox.process}. */
  constructor(transport: Transport, sandboxPath: string, pid: number) {
    this.#transport = transport;
    this.#path = `${sandboxPath}/processes/${pid}`;
    this.pid = pid;
  }

  /** Follows the output from its first byte. */
  [Symbol.asyncIterator](): AsyncGenerator<ExecEvent, void, undefined> {
    return this.output();
  }

  /**
   * Follows the output from a byte offset on, to the end of the process. What
   * the server no longer holds is skipped: the first offset shows it. Leaving
   * the loop does not touch the process.
   */
  async *output(from = 0, options: CallOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    const decoder = new Decoder();
    let next = from;
    let joined = false;
    for (let failures = 0; ; failures++) {
      const before = next;
      try {
        for await (const event of this.#join(next, options)) {
          joined = true;
          const fresh = withoutSeen(event, next, decoder);
          if (!fresh) continue;
          next = fresh.isFinal ? next : fresh.offset + fresh.bytes.length;
          yield fresh;
          if (fresh.isFinal) return;
        }
      } catch (error) {
        if (joined && (error instanceof SandboxPausedError || error instanceof SandboxNotReadyError)) {
          // It was paused in the middle of it, and continues when it is resumed.
          await this.#transport.pause(pausedLook, options.signal);
          failures = -1;
          continue;
        }
        if (!(error instanceof ConnectionError)) throw error;
        if (next === before && failures >= maxRejoins) throw error;
      }
      joined = true;
      if (next > before) failures = 0;
      if (failures >= maxRejoins) throw endless(this.pid);
      await this.#transport.pause(failures, options.signal);
    }
  }

  #join(from: number, options: CallOptions): AsyncGenerator<WireExecEvent, void, undefined> {
    return this.#transport.events<WireExecEvent>({ path: `${this.#path}/output`, query: { from }, signal: options.signal });
  }

  /** Waits for the end and returns all the output that the server still holds. */
  async wait(options: CallOptions = {}): Promise<ExecResult> {
    if (this.#result) return this.#result;
    const collector = new ResultCollector();
    for await (const event of this.output(0, options)) collector.add(event);
    return (this.#result = collector.result(this.pid));
  }

  /** Writes to its standard input. */
  async write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    for (const piece of inPieces(data)) await this.#post("stdin", piece, options);
  }

  /** Closes its standard input: it reads end of file. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.#post("stdin", { eof: true }, options);
  }

  /** Sends a signal to it and to what it started. */
  async signal(signal: SignalName | number, options: CallOptions = {}): Promise<void> {
    await this.#post("signal", { signal: signalNumber(signal) }, options);
  }

  /** Kills it and what it started. */
  async kill(options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: this.#path, ...options });
  }

  async #post(verb: string, json: unknown, options: CallOptions): Promise<void> {
    await this.#transport.empty({ method: "POST", path: `${this.#path}/${verb}`, json, repeatable: false, keyed: true, ...options });
  }
}

/** A JSON body may be large, but not as large as what somebody wants to write. */
const maxPiece = 1 << 20;

function* inPieces(data: string | Uint8Array): Generator<{ data: string; encoding?: string }> {
  if (typeof data === "string" && data.length <= maxPiece) {
    yield { data };
    return;
  }
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  for (let at = 0; at < bytes.length; at += maxPiece) yield { data: toBase64(bytes.subarray(at, at + maxPiece)), encoding: "base64" };
}

/** Returns the event without the bytes before the offset, or undefined when nothing is left of it. */
function withoutSeen(event: WireExecEvent, next: number, decoder: Decoder): ExecEvent | undefined {
  if (event.isFinal) return toExecEvent(event, decoder);
  const offset = event.offset ?? 0;
  const bytes = Decoder.bytes(event.data ?? "", event.encoding).subarray(Math.max(0, next - offset));
  if (bytes.length === 0) return undefined;
  const stream = event.stream === "stderr" ? "stderr" : "stdout";
  return { stream, data: decoder.text(stream, bytes), bytes, offset: Math.max(offset, next), isFinal: false };
}

function endless(pid: number): ConnectionError {
  return new ConnectionError({ code: "connection_failed", detail: `the output of process ${pid} ends again and again before the process does.` });
}
