import { BothyError, ConnectionError } from "./errors.js";
import { BoundedText, Decoder } from "./output.js";
import type { Call, CallOptions, Transport } from "./transport.js";

/** Languages for code, if the template has them. */
export type Language = "python" | "javascript" | "bash";

/** Something that code displayed, by MIME type: text as is, images in base64. */
export type CodeOutput = Record<string, string>;

/** The exception that ended a piece of code. */
export interface CodeError {
  name: string;
  value: string;
  traceback: string;
}

/** Options of {@link Sandbox.runCode}. */
export interface RunCodeOptions extends CallOptions {
  /** Default `python`. */
  language?: Language;
  /** Where variables persist from one piece of code to the next. Default: one for each language. */
  context?: CodeContext | string;
  /** Interrupts the code after this long. */
  timeoutSeconds?: number;
  /** Set while the code runs. */
  env?: Record<string, string>;
  /** Called with every piece of standard output as it arrives. */
  onStdout?: (text: string) => void;
  /** Called with every piece of standard error as it arrives. */
  onStderr?: (text: string) => void;
  /** Called with everything that is displayed, as it arrives. */
  onResult?: (result: CodeOutput) => void;
}

/** The fields of a {@link CodeResult}. */
export interface CodeResultFields {
  results?: CodeOutput[];
  stdout?: string;
  stderr?: string;
  error?: CodeError;
  executionCount?: number;
  durationMs?: number;
  timedOut?: boolean;
  oomKilled?: boolean;
  truncated?: boolean;
  contextId?: string;
  hint?: string;
  exitCode?: number;
}

/** The result of a piece of code. An exception in the code is a result, not an error; see {@link check}. */
export class CodeResult {
  /** What it displayed, in order. */
  readonly results: CodeOutput[];
  /** What it wrote to standard output. */
  readonly stdout: string;
  /** What it wrote to standard error. */
  readonly stderr: string;
  /** The exception that ended it. */
  readonly error?: CodeError;
  /** The number of this execution in its context, from 1. */
  readonly executionCount: number;
  /** How long it ran. */
  readonly durationMs: number;
  /** True when its own time-out interrupted it. */
  readonly timedOut: boolean;
  /** True when it was killed because the sandbox's memory was full. */
  readonly oomKilled: boolean;
  /** True if output was left out because it was too long. */
  readonly truncated: boolean;
  /** The context in which it ran. */
  readonly contextId: string;
  /** What to do when a limit ended it. */
  readonly hint?: string;
  /** For code in bash, the exit code of its last command, or, after `exit`, of the shell. */
  readonly exitCode?: number;

  constructor(fields: CodeResultFields) {
    this.results = fields.results ?? [];
    this.stdout = fields.stdout ?? "";
    this.stderr = fields.stderr ?? "";
    this.error = fields.error ?? undefined;
    this.executionCount = fields.executionCount ?? 0;
    this.durationMs = fields.durationMs ?? 0;
    this.timedOut = fields.timedOut ?? false;
    this.oomKilled = fields.oomKilled ?? false;
    this.truncated = fields.truncated ?? false;
    this.contextId = fields.contextId ?? "";
    this.hint = fields.hint || undefined;
    this.exitCode = fields.exitCode;
  }

  /** True when it ended without an exception. */
  get ok(): boolean {
    return this.error === undefined;
  }

  /** The plain text of the last result that has one, as a notebook would show it. */
  get text(): string | undefined {
    return this.results.findLast((result) => "text/plain" in result)?.["text/plain"];
  }

  /** Returns this result, or throws a {@link CodeFailedError} when there was an exception. */
  check(): this {
    if (this.error) throw new CodeFailedError(this, this.error);
    return this;
  }
}

/** Code ended with an exception, and {@link CodeResult.check} was called. */
export class CodeFailedError extends BothyError {
  /** The whole result. */
  readonly result: CodeResult;

  constructor(result: CodeResult, error: CodeError) {
    super({ code: "code_failed", detail: `the code ended with ${error.name}: ${error.value}.`, hint: result.hint });
    this.result = result;
  }
}

/** A place where code runs and variables persist. */
export interface CodeContext {
  id: string;
  language: Language;
  cwd?: string;
  createdAt?: Date;
}

/** The contexts of a sandbox. */
export class Contexts {
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, sandboxPath: string) {
    this.#transport = transport;
    this.#path = `${sandboxPath}/contexts`;
  }

  /** Creates a context with its own variables. */
  async create(params: { language?: Language; cwd?: string } = {}, options: CallOptions = {}): Promise<CodeContext> {
    return this.#transport.json({ method: "POST", path: this.#path, json: params, ...options });
  }

  /** Lists the contexts. */
  async list(options: CallOptions = {}): Promise<CodeContext[]> {
    return (await this.#transport.json<{ items: CodeContext[] }>({ path: this.#path, ...options })).items;
  }

  /** Ends a context; its variables are lost. */
  async remove(context: CodeContext | string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: this.#of(context), ...options });
  }

  /**
   * Stops the code that runs in a context, as Ctrl-C does; also code that waits for its
   * interpreter to start. Throws a {@link ConflictError} where none runs, or has not arrived yet.
   */
  async interrupt(context: CodeContext | string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "POST", path: `${this.#of(context)}/interrupt`, ...options });
  }

  /** Resets a context; its variables are lost. */
  async restart(context: CodeContext | string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "POST", path: `${this.#of(context)}/restart`, ...options });
  }

  #of(context: CodeContext | string): string {
    return `${this.#path}/${encodeURIComponent(contextId(context))}`;
  }
}

function contextId(context: CodeContext | string): string {
  return typeof context === "string" ? context : context.id;
}

interface WireCodeEvent extends CodeResultFields {
  stream?: "stdout" | "stderr";
  data?: string;
  encoding?: string;
  results?: CodeOutput[];
  isFinal?: boolean;
}

function codeCall(path: string, code: string, options: RunCodeOptions): Call {
  const { language, context, timeoutSeconds, env, signal } = options;
  return {
    method: "POST",
    path: `${path}/code`,
    json: { code, language, contextId: context && contextId(context), timeoutSeconds, env },
    timeoutSeconds: timeoutSeconds ? timeoutSeconds + 30 : 0,
    repeatable: false,
    keyed: true,
    signal,
  };
}

/** @internal Runs a piece of code to its end. */
export async function runCode(transport: Transport, path: string, code: string, options: RunCodeOptions): Promise<CodeResult> {
  const call = codeCall(path, code, options);
  if (!options.onStdout && !options.onStderr && !options.onResult) {
    return new CodeResult(await transport.json<CodeResultFields>(call));
  }
  return follow(transport.events<WireCodeEvent>(call), options);
}

function whole(final: WireCodeEvent, results: CodeOutput[], { stdout, stderr }: Record<"stdout" | "stderr", BoundedText>): CodeResult {
  const truncated = final.truncated || stdout.truncated || stderr.truncated;
  return new CodeResult({ ...final, results, stdout: stdout.text(), stderr: stderr.text(), truncated });
}

async function follow(events: AsyncIterable<WireCodeEvent>, options: RunCodeOptions): Promise<CodeResult> {
  const texts = { stdout: new BoundedText(), stderr: new BoundedText() };
  const callbacks = { stdout: options.onStdout, stderr: options.onStderr };
  const decoder = new Decoder();
  const results: CodeOutput[] = [];
  for await (const event of events) {
    if (event.isFinal) return whole(event, results, texts);
    if (event.stream) {
      const text = decoder.text(event.stream, Decoder.bytes(event.data ?? "", event.encoding));
      texts[event.stream].add(text);
      callbacks[event.stream]?.(text);
    }
    for (const result of event.results ?? []) {
      results.push(result);
      options.onResult?.(result);
    }
  }
  throw new ConnectionError({ code: "connection_failed", detail: "the stream of the code's output ended before the code did." });
}
