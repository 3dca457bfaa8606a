import { ProcessNotFoundError } from "bothy";
import type { Process } from "bothy";
import type { RestrictedSession } from "./session.js";

type SandboxProcess = Awaited<ReturnType<RestrictedSession["spawn"]>>;
type Name = "stdout" | "stderr";

/** How long a connection is kept for the next read. */
const restMilliseconds = 250;

/**
 * Follows a process: its output, each stream for itself, and its end. An abort of `signal` kills it; one
 * of `over` lets go of it.
 */
export function follow(process: Process, over: AbortSignal, signal?: AbortSignal): SandboxProcess {
  const output = new Output(process, signal ? AbortSignal.any([signal, over]) : over);
  const kill = async (): Promise<void> => {
    await process.kill().catch((error: unknown) => {
      if (!(error instanceof ProcessNotFoundError)) throw error;
    });
  };
  // Where that fails the sandbox has ended, and the process with it.
  signal?.addEventListener("abort", () => void kill().catch(() => undefined), { once: true });
  return { pid: process.pid, stdout: output.stream("stdout"), stderr: output.stream("stderr"), wait: () => output.end(), kill };
}

/**
 * The output of a process. There is a connection while somebody reads, or waits for the end. Otherwise
 * there is none, and the output stays in the sandbox instead of filling this program's memory.
 */
class Output {
  readonly #process: Process;
  readonly #over: AbortSignal;
  readonly #open = new Map<Name, ReadableStreamDefaultController<Uint8Array>>();
  /** The streams on which a read waits, and what continues with it. */
  readonly #reads = new Map<Name, () => void>();
  readonly #end: Promise<{ exitCode: number }>;
  #settle!: { resolve: (end: { exitCode: number }) => void; reject: (error: unknown) => void };
  #awaited = false;
  #done = false;
  #next = 0;
  #connection: AbortController | undefined;

  constructor(process: Process, over: AbortSignal) {
    this.#process = process;
    this.#over = over;
    this.#end = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.#end.catch(() => undefined); // for those who wait
  }

  /** One of its streams. What arrives for the other in the meantime is kept for that. */
  stream(name: Name): ReadableStream<Uint8Array> {
    const source: UnderlyingDefaultSource<Uint8Array> = {
      start: (out) => void this.#open.set(name, out),
      pull: () => {
        const arrived = new Promise<void>((resolve) => this.#reads.set(name, resolve));
        this.#connect();
        return arrived;
      },
      cancel: () => {
        this.#open.delete(name);
        this.#reads.delete(name);
        this.#restLater();
      },
    };
    return new ReadableStream(source, { highWaterMark: 0 });
  }

  /** Waits for the end. */
  end(): Promise<{ exitCode: number }> {
    this.#awaited = true;
    this.#connect();
    return this.#end;
  }

  get #wanted(): boolean {
    return !this.#done && (this.#awaited || this.#reads.size > 0);
  }

  #connect(): void {
    if (this.#connection || !this.#wanted) return;
    const connection = new AbortController();
    this.#connection = connection;
    void this.#read(connection.signal).finally(() => {
      this.#connection = undefined;
      this.#connect();
    });
  }

  async #read(rested: AbortSignal): Promise<void> {
    try {
      for await (const event of this.#process.output(this.#next, { signal: AbortSignal.any([rested, this.#over]) })) {
        if (event.isFinal) return this.#finish((out) => out.close(), () => this.#settle.resolve({ exitCode: event.exitCode }));
        this.#next = event.offset + event.bytes.length;
        this.#open.get(event.stream)?.enqueue(event.bytes);
        this.#goOn(event.stream);
        this.#restLater();
      }
    } catch (error) {
      if (rested.aborted && !this.#over.aborted) return;
      this.#finish((out) => out.error(error), () => this.#settle.reject(error));
    }
  }

  #finish(each: (out: ReadableStreamDefaultController<Uint8Array>) => void, settle: () => void): void {
    this.#done = true;
    this.#open.forEach(each);
    for (const name of [...this.#reads.keys()]) this.#goOn(name);
    settle();
  }

  #goOn(name: Name): void {
    this.#reads.get(name)?.();
    this.#reads.delete(name);
  }

  #restLater(): void {
    if (this.#wanted) return;
    const connection = this.#connection;
    setTimeout(() => {
      if (!this.#wanted) connection?.abort();
    }, restMilliseconds);
  }
}
