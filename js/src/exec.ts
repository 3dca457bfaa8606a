import { BothyError, ConnectionError, InvalidArgumentError } from "./errors.js";
import { BoundedBytes, Decoder, textOf, toBase64 } from "./output.js";
import type { Call, CallOptions, Transport } from "./transport.js";

/** A line for `bash -lc` (`sh -lc` where the image has no bash), or an argument vector that is run as it is. */
export type Command = string | readonly string[];

/** How a command is run. */
export interface CommandOptions extends CallOptions {
  /** Where it starts. Default `/workspace`. */
  cwd?: string;
  /** Added to the sandbox's environment. */
  env?: Record<string, string>;
  /** Who runs it. Default `user`; `root` is allowed. */
  user?: string;
  /** Kills the command, and all it started, after so long. Default: the sandbox's own limit. */
  timeoutSeconds?: number;
  /** Given to the command, followed by end of file. */
  stdin?: string | Uint8Array;
  /** Writes standard error into standard output, in the order of writing. */
  mergeStderr?: boolean;
  /** Lets the command run on when its caller leaves before its end, which otherwise kills it. */
  keepRunning?: boolean;
}

/** Options of {@link Sandbox.exec}. */
export interface ExecOptions extends CommandOptions {
  /** Called with every piece of standard output as it arrives. */
  onStdout?: (text: string) => void;
  /** Called with every piece of standard error as it arrives. */
  onStderr?: (text: string) => void;
}

/** A piece of output of a command. */
export interface OutputEvent {
  stream: "stdout" | "stderr";
  /** The output as text. Bytes that are not UTF-8 are replaced; see {@link bytes}. */
  data: string;
  /** The output as it is. */
  bytes: Uint8Array;
  /** The position of the first byte in the whole output, both streams together. */
  offset: number;
  isFinal: false;
}

/** The end of a command. */
export interface FinalEvent {
  isFinal: true;
  exitCode: number;
  durationMs: number;
  timedOut: boolean;
  oomKilled: boolean;
  truncated: boolean;
  pid: number;
  hint?: string;
}

/** What a followed command yields: pieces of output, and then its end. */
export type ExecEvent = OutputEvent | FinalEvent;

/** @internal The form in which both kinds arrive. */
export interface WireExecEvent {
  stream?: "stdout" | "stderr";
  data?: string;
  encoding?: string;
  offset?: number;
  pid?: number;
  isFinal?: boolean;
  exitCode?: number;
  durationMs?: number;
  timedOut?: boolean;
  oomKilled?: boolean;
  truncated?: boolean;
  hint?: string;
}

/** The fields of an {@link ExecResult}. */
export interface ExecResultFields {
  exitCode: number;
  stdout: string;
  stderr: string;
  durationMs: number;
  timedOut?: boolean;
  oomKilled?: boolean;
  truncated?: boolean;
  pid: number;
  hint?: string;
  stdoutBase64?: string;
  stderrBase64?: string;
}

/** A command that has ended. A non-zero exit code is a result, not an error; see {@link check}. */
export class ExecResult {
  /** The command's own exit code, or 128 plus the signal that killed it. */
  readonly exitCode: number;
  /** Standard output. */
  readonly stdout: string;
  /** Standard error. */
  readonly stderr: string;
  /** How long it ran. */
  readonly durationMs: number;
  /** True when its own time-out killed it. */
  readonly timedOut: boolean;
  /** True when it was killed because the sandbox's memory was full. */
  readonly oomKilled: boolean;
  /** True if output was left out because it was too long. */
  readonly truncated: boolean;
  /** The process id inside the sandbox. */
  readonly pid: number;
  /** What to do when a limit killed it. */
  readonly hint?: string;
  readonly #raw: { stdout?: string; stderr?: string };

  constructor(fields: ExecResultFields) {
    this.exitCode = fields.exitCode;
    this.stdout = fields.stdout ?? "";
    this.stderr = fields.stderr ?? "";
    this.durationMs = fields.durationMs ?? 0;
    this.timedOut = fields.timedOut ?? false;
    this.oomKilled = fields.oomKilled ?? false;
    this.truncated = fields.truncated ?? false;
    this.pid = fields.pid ?? 0;
    this.hint = fields.hint;
    this.#raw = { stdout: fields.stdoutBase64, stderr: fields.stderrBase64 };
  }

  /** Standard output as it was written, even if it is not UTF-8. */
  get stdoutBytes(): Uint8Array {
    return Decoder.bytes(this.#raw.stdout || this.stdout, this.#raw.stdout ? "base64" : undefined);
  }

  /** Standard error as it was written, even if it is not UTF-8. */
  get stderrBytes(): Uint8Array {
    return Decoder.bytes(this.#raw.stderr || this.stderr, this.#raw.stderr ? "base64" : undefined);
  }

  /** True when the exit code is zero. */
  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** Returns this result, or throws a {@link CommandError} when the exit code is not zero. */
  check(): this {
    if (!this.ok) throw new CommandError(this);
    return this;
  }
}

/** A command ended with an exit code other than zero, and {@link ExecResult.check} was called. */
export class CommandError extends BothyError {
  /** The whole result. */
  readonly result: ExecResult;

  constructor(result: ExecResult) {
    super({ code: "command_failed", detail: describe(result), hint: result.hint });
    this.result = result;
  }

  /** The exit code. */
  get exitCode(): number {
    return this.result.exitCode;
  }
}

function describe(result: ExecResult): string {
  const how = result.timedOut ? "ran out of time and " : result.oomKilled ? "ran out of memory and " : "";
  const last = (result.stderr.trim() || result.stdout.trim()).split("\n").slice(-5).join("\n");
  return `the command ${how}ended with exit code ${result.exitCode}${last ? `: ${last}` : ""}.`;
}

/** @internal Collects the events of a command, from its first byte on, into its result. */
export class ResultCollector {
  readonly #stdout = new BoundedBytes();
  readonly #stderr = new BoundedBytes();
  #next = 0;
  #gap = false;
  #final: FinalEvent | undefined;

  /** Adds one event. */
  add(event: ExecEvent): void {
    if (event.isFinal) {
      this.#final = event;
      return;
    }
    this.#gap ||= event.offset > this.#next;
    this.#next = event.offset + event.bytes.length;
    (event.stream === "stderr" ? this.#stderr : this.#stdout).add(event.bytes);
  }

  /** Returns the result once the end has been added. */
  result(pid = 0): ExecResult {
    const final = this.#final as FinalEvent;
    const [stdout, stderr] = [textOf(this.#stdout.bytes()), textOf(this.#stderr.bytes())];
    return new ExecResult({
      ...final,
      pid: final.pid || pid,
      stdout: stdout.text,
      stderr: stderr.text,
      stdoutBase64: stdout.base64,
      stderrBase64: stderr.base64,
      truncated: final.truncated || this.#gap || this.#stdout.truncated || this.#stderr.truncated,
    });
  }
}

/** @internal Turns a wire event into the user's form. */
export function toExecEvent(event: WireExecEvent, decoder: Decoder): ExecEvent {
  if (event.isFinal) return toFinal(event);
  const stream = event.stream === "stderr" ? "stderr" : "stdout";
  const bytes = Decoder.bytes(event.data ?? "", event.encoding);
  return { stream, data: decoder.text(stream, bytes), bytes, offset: event.offset ?? 0, isFinal: false };
}

function toFinal(event: WireExecEvent): FinalEvent {
  return {
    isFinal: true,
    exitCode: event.exitCode ?? 0,
    durationMs: event.durationMs ?? 0,
    timedOut: event.timedOut ?? false,
    oomKilled: event.oomKilled ?? false,
    truncated: event.truncated ?? false,
    pid: event.pid ?? 0,
    hint: event.hint,
  };
}

/** @internal What goes over the wire for a command. */
export function commandBody(command: Command, options: CommandOptions): Record<string, unknown> {
  if (command.length === 0) {
    throw new InvalidArgumentError({ code: "invalid_argument", detail: "the command is empty.", hint: 'Give a line for the shell or an array such as ["ls", "-l"].' });
  }
  const { cwd, env, user, timeoutSeconds, stdin, mergeStderr, keepRunning } = options;
  const input = stdin instanceof Uint8Array ? { stdin: toBase64(stdin), stdinEncoding: "base64" } : { stdin };
  return { command, cwd, env, user, timeoutSeconds, ...input, mergeStderr: mergeStderr || undefined, keepRunning: keepRunning || undefined };
}

/** Waits a little longer than the server does, so that its answer wins. */
const graceSeconds = 30;

function execCall(path: string, command: Command, options: CommandOptions): Call {
  const { signal, timeoutSeconds } = options;
  return {
    method: "POST",
    path: `${path}/exec`,
    repeatable: false,
    keyed: true,
    json: commandBody(command, options),
    timeoutSeconds: timeoutSeconds ? timeoutSeconds + graceSeconds : 0,
    signal,
  };
}

/** @internal Runs a command and yields its output and its end. Leaving the loop kills it. */
export async function* execStream(transport: Transport, path: string, command: Command, options: CommandOptions): AsyncGenerator<ExecEvent, void, undefined> {
  const decoder = new Decoder();
  for await (const event of transport.events<WireExecEvent>(execCall(path, command, options))) {
    const seen = toExecEvent(event, decoder);
    yield seen;
    if (seen.isFinal) return;
  }
  throw new ConnectionError({
    code: "connection_failed",
    detail: "the stream of the command's output ended before the command did.",
    hint: "Use spawn for long work: its output can be joined again.",
  });
}

/** @internal Runs a command to its end. */
export async function exec(transport: Transport, path: string, command: Command, options: ExecOptions): Promise<ExecResult> {
  if (!options.onStdout && !options.onStderr) {
    return new ExecResult(await transport.json<ExecResultFields>(execCall(path, command, options)));
  }
  const collector = new ResultCollector();
  for await (const event of execStream(transport, path, command, options)) {
    collector.add(event);
    if (!event.isFinal) (event.stream === "stderr" ? options.onStderr : options.onStdout)?.(event.data);
  }
  return collector.result();
}

/** @internal Starts a command in the background and returns its process id. */
export async function spawn(transport: Transport, path: string, command: Command, options: CommandOptions): Promise<number> {
  const json = { ...commandBody(command, options), background: true };
  const call: Call = { method: "POST", path: `${path}/exec`, json, repeatable: false, keyed: true, signal: options.signal };
  return (await transport.json<{ pid: number }>(call)).pid;
}
