/**
 * The only place that talks HTTP: addresses, keys, time-outs, retries and
 * errors. Resources describe requests; this sends them.
 *
 * @module
 * @internal
 */
import { type Credentials, findCredentials } from "./config.js";
import { BothyError, ConnectionError, errorFromBody, errorFromProblem, TimeoutError } from "./errors.js";
import { patientFetchOptions } from "./runtime.js";
import { readChunks, readEvents, type ServerEvent } from "./sse.js";
import { fromWire, type QueryValue, toQuery, toWire } from "./wire.js";
import { VERSION } from "./version.js";

/** Options that every call takes. */
export interface CallOptions {
  /** Stops the call, and the work behind it, when aborted. */
  signal?: AbortSignal;
}

/** How to reach a server. Everything is optional. */
export interface BothyOptions {
  /** The server's address. Default: BOTHY_URL, then the credentials file. */
  url?: string;
  /** The API key. Default: BOTHY_API_KEY, then the credentials file. */
  apiKey?: string;
  /**
   * True in pages that the server itself serves, whose visitor has logged in: calls go to this
   * origin with the browser's login, and there is no key.
   */
  browserLogin?: boolean;
  /** How long to wait for an answer to a call that has no time-out of its own. Default 60; 0 means for ever. */
  requestTimeoutSeconds?: number;
  /**
   * How often a safe call is tried again after a failure that may pass. Default 3, and for up to
   * 25 seconds where nothing listens at the address: a server may be restarting.
   */
  maxRetries?: number;
  /** Headers to send with every request. */
  headers?: Record<string, string>;
  /** The fetch to use instead of the global one. */
  fetch?: typeof globalThis.fetch;
}

/** A body that is sent as it is. A function is called again for every try. */
export type RawBody = BodyInit | (() => BodyInit | Promise<BodyInit>);

/** One request. */
export interface Call extends CallOptions {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Record<string, QueryValue>;
  /** Is sent as JSON in the wire's form. */
  json?: unknown;
  /** Is sent as it is. */
  body?: RawBody;
  headers?: Record<string, string>;
  /** Overrides the client's time-out; 0 means for ever. */
  timeoutSeconds?: number;
  /** False for work that must not be begun twice: it is tried again only when the first try was not begun. */
  repeatable?: boolean;
  /** Whether a key tells the server that a second try is one; as repeatable unless given. */
  keyed?: boolean;
}

/** Time and chance, which tests replace. */
export interface Nature {
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  random(): number;
}

/** Waits, or throws the signal's reason. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

const nature: Nature = { sleep, random: Math.random };

/** How long the server may take to make, wake or copy a sandbox. */
export const startSeconds = 300;

const maxDelaySeconds = 30;
/** How long to wait for a server that takes no connections. */
const refusedMs = 25_000;
const passing = new Set([429, 502, 503, 504]);
/** Statuses that say that nothing was done. */
const refused = new Set([429, 503]);
/** Trying again cannot help here. */
const final = new Set(["quota_exceeded", "engine_unavailable", "guest_unreachable", "timeout"]);
/** Failures of a connection over which nothing was sent. */
const unsent = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

function isStream(body: unknown): boolean {
  return typeof ReadableStream !== "undefined" && body instanceof ReadableStream;
}

/** Timers overflow beyond this, and fire at once. */
const maxTimerSeconds = (2 ** 31 - 1) / 1000;

/** One signal that follows the caller's and fires when the time is up. */
class Deadline {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** True when the time was up. */
  expired = false;

  constructor(outer: AbortSignal | undefined, seconds: number) {
    this.#outer = outer;
    if (outer?.aborted) this.#onAbort();
    else outer?.addEventListener("abort", this.#onAbort, { once: true });
    if (seconds > 0 && seconds <= maxTimerSeconds) this.#timer = setTimeout(() => this.#expire(), seconds * 1000);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  readonly #onAbort = (): void => this.#controller.abort(this.#outer?.reason);

  #expire(): void {
    this.expired = true;
    this.#controller.abort();
  }

  /** Stops the clock; the caller's signal stays connected. */
  stopClock(): void {
    clearTimeout(this.#timer);
  }

  /** Stops the clock and lets go of the caller's signal. */
  release(): void {
    this.stopClock();
    this.#outer?.removeEventListener("abort", this.#onAbort);
  }

  /** Ends the request. */
  abort(): void {
    this.#controller.abort();
  }
}

/** An answer whose body is still on its way. */
export class Answer {
  /** The status and the headers. */
  readonly response: Response;
  readonly #deadline: Deadline;
  readonly #explain: (cause: unknown) => unknown;
  #closed = false;

  /** @internal */
  constructor(response: Response, deadline: Deadline, explain: (cause: unknown) => unknown) {
    this.response = response;
    this.#deadline = deadline;
    this.#explain = explain;
  }

  /** Yields the body. Leaving the loop hangs up. */
  async *chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      if (this.response.body) yield* readChunks(this.response.body);
    } catch (cause) {
      if (!this.#closed) throw this.#explain(cause);
    } finally {
      this.#deadline.release();
    }
  }

  /** Hangs up. */
  close(): void {
    this.#closed = true;
    this.#deadline.abort();
    this.#deadline.release();
  }
}

/** Events as they arrive. Loop over it once; leaving the loop, or {@link close}, hangs up. */
export class EventStream<T> implements AsyncIterable<T> {
  readonly #answer: Answer;

  /** @internal */
  constructor(answer: Answer) {
    this.#answer = answer;
  }

  /** Yields the events until the stream ends or is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const event of readEvents(this.#answer.chunks())) yield fromWire<T>(parseData(event));
  }

  /** Hangs up. A loop that waits for the next event ends. */
  close(): void {
    this.#answer.close();
  }

  /** Hangs up; `await using` calls it. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

/** One try of a call. It calls keep when the deadline outlives it. */
type Attempt<T> = (call: Call, deadline: Deadline, keep: () => void) => Promise<T>;

/** Sends requests to one server. */
export class Transport {
  readonly #options: BothyOptions;
  readonly #nature: Nature;
  #credentials: Promise<Credentials> | undefined;
  #known: Credentials | undefined;

  constructor(options: BothyOptions = {}, faults: Partial<Nature> = {}) {
    this.#options = options;
    this.#nature = { ...nature, ...faults };
  }

  /** Returns the address and the key, which are looked for once. */
  async credentials(): Promise<Credentials> {
    this.#credentials ??= this.#options.browserLogin
      ? Promise.resolve({ url: globalThis.location.origin, apiKey: "" })
      : findCredentials(this.#options);
    try {
      this.#known = await this.#credentials;
      return this.#known;
    } catch (error) {
      this.#credentials = undefined;
      throw error;
    }
  }

  /** Waits between two tries. */
  pause(attempt: number, signal?: AbortSignal): Promise<void> {
    return this.#nature.sleep(this.#pauseMs(attempt), signal);
  }

  #pauseMs(attempt: number): number {
    return Math.min(100 * 2 ** attempt, 5000) * (0.5 + this.#nature.random() / 2);
  }

  /** Sends a request and returns the parsed JSON of the answer. */
  async json<T>(call: Call): Promise<T> {
    return this.read(call, async (response) => fromWire<T>(JSON.parse(await response.text())));
  }

  /** Sends a request and forgets the body of the answer. */
  async empty(call: Call): Promise<void> {
    await this.read(call, (response) => response.arrayBuffer());
  }

  /** Sends a request and gives the answer to read, within the time-out. */
  async read<T>(call: Call, read: (response: Response) => Promise<T>): Promise<T> {
    return this.#withRetries(call, async (keyed, deadline) => read(await this.#send(keyed, deadline)));
  }

  /** Sends a request and returns the answer as soon as its headers are there. */
  async open(call: Call): Promise<Answer> {
    return this.#withRetries(call, async (keyed, deadline, keep) => {
      const response = await this.#send(keyed, deadline);
      deadline.stopClock();
      keep();
      return new Answer(response, deadline, (cause) => this.#explain(cause, call));
    });
  }

  /** Yields the events of a stream. Leaving the loop hangs up. */
  async *events<T>(call: Call): AsyncGenerator<T, void, undefined> {
    yield* await this.follow<T>(call);
  }

  /** Opens a stream of events and returns it once the server has begun to answer. */
  async follow<T>(call: Call): Promise<EventStream<T>> {
    const answer = await this.open({ ...call, headers: { Accept: "text/event-stream", ...call.headers } });
    return new EventStream<T>(answer);
  }

  /** Returns an absolute address and the headers for it, for what is not done by fetch. */
  async address(path: string, query?: Record<string, QueryValue>): Promise<{ url: string; headers: Record<string, string> }> {
    const { url, apiKey } = await this.credentials();
    return { url: `${url}${path}${toQuery(query)}`, headers: this.#headers(apiKey) };
  }

  #headers(apiKey: string): Record<string, string> {
    if (this.#options.browserLogin) return { "X-Bothy-Console": "1", ...this.#options.headers };
    return { Authorization: `Bearer ${apiKey}`, "User-Agent": `bothy-js/${VERSION}`, ...this.#options.headers };
  }

  async #withRetries<T>(call: Call, attempt: Attempt<T>): Promise<T> {
    const keyed: Call = { ...call, headers: { ...idempotencyKey(call), ...call.headers } };
    const max = isStream(call.body) ? 0 : (this.#options.maxRetries ?? 3);
    const patience = isStream(call.body) ? 0 : this.#refusedPatience(call);
    for (let n = 0, waited = 0; ; n++) {
      try {
        return await this.#once(keyed, attempt);
      } catch (error) {
        if (!mayPass(error, call.repeatable ?? true)) throw error;
        const pause = this.#backOff(n, error);
        const wait = error instanceof ConnectionError && reason(error) === "ECONNREFUSED" && waited + pause <= patience;
        if (n >= max && !wait) throw error;
        await this.#nature.sleep(pause, call.signal);
        waited += pause;
      }
    }
  }

  /** Milliseconds to wait for a server that takes no connections. */
  #refusedPatience(call: Call): number {
    if (this.#options.maxRetries !== undefined) return 0;
    const seconds = call.timeoutSeconds ?? this.#options.requestTimeoutSeconds ?? 60;
    return seconds > 0 ? Math.min(refusedMs, seconds * 1000) : refusedMs;
  }

  async #once<T>(call: Call, attempt: Attempt<T>): Promise<T> {
    call.signal?.throwIfAborted();
    const deadline = new Deadline(call.signal, call.timeoutSeconds ?? this.#options.requestTimeoutSeconds ?? 60);
    let kept = false;
    try {
      return await attempt(call, deadline, () => (kept = true));
    } catch (cause) {
      deadline.abort();
      throw this.#explain(cause, call, deadline.expired);
    } finally {
      if (!kept) deadline.release();
    }
  }

  #backOff(n: number, error: unknown): number {
    const asked = error instanceof BothyError ? error.retryAfterSeconds : undefined;
    if (asked === undefined) return this.#pauseMs(n);
    if (asked > maxDelaySeconds) throw error;
    return asked * 1000;
  }

  async #send(call: Call, deadline: Deadline): Promise<Response> {
    const { url, headers } = await this.address(call.path, call.query);
    const body = await bodyOf(call);
    const init: RequestInit & { duplex?: "half" } = {
      method: call.method ?? "GET",
      headers: { ...headers, ...(call.json === undefined ? {} : { "Content-Type": "application/json" }), ...call.headers },
      body,
      signal: deadline.signal,
      redirect: "manual",
      ...(isStream(body) ? { duplex: "half" } : {}),
      ...(this.#options.fetch ? {} : patientFetchOptions()),
    };
    const response = await (this.#options.fetch ?? globalThis.fetch)(url, init);
    if (!response.ok) throw errorFromBody(response.status, response.headers, await response.text());
    return response;
  }

  #explain(cause: unknown, call: Call, expired = false): unknown {
    if (expired) return timedOut(call, this.#options);
    if (call.signal?.aborted) return call.signal.reason;
    if (cause instanceof BothyError) return cause;
    if (cause instanceof SyntaxError) return notJson(call, cause);
    return new ConnectionError({
      code: "connection_failed",
      detail: `the connection to the server${this.#known ? ` at ${this.#known.url}` : ""} failed: ${reason(cause)}.`,
      hint: "Check that the server runs (`bothy up`) and that BOTHY_URL is right.",
      cause,
    });
  }
}

function parseData(event: ServerEvent): unknown {
  const value: unknown = JSON.parse(event.data);
  if (event.event === "error") throw errorOfStream(errorFromProblem(fromWire(value)));
  return value;
}

/** When the server shuts down the connection ends, and what it showed does not: one may join it again. */
function errorOfStream(error: BothyError): BothyError {
  if (error.code !== "shutting_down") return error;
  return new ConnectionError({ code: error.code, detail: error.detail, hint: error.hint, cause: error });
}

/** The idempotency key of a caller's tag. */
export function keyOf(tag: string): string {
  return `tag-${encodeURIComponent(tag)}`;
}

function idempotencyKey({ method, repeatable, keyed = repeatable !== false }: Call): Record<string, string> {
  return keyed && (method === "POST" || method === "PATCH") ? { "Idempotency-Key": globalThis.crypto.randomUUID() } : {};
}

async function bodyOf(call: Call): Promise<BodyInit | undefined> {
  if (call.json !== undefined) return JSON.stringify(toWire(call.json));
  return typeof call.body === "function" ? call.body() : call.body;
}

function mayPass(error: unknown, repeatable: boolean): boolean {
  if (error instanceof ConnectionError) return repeatable || unsent.has(reason(error));
  if (!(error instanceof BothyError) || final.has(error.code)) return false;
  // The first try of this very call is still being worked on.
  if (error.status === 409) return repeatable && error.retryAfterSeconds !== undefined;
  return (repeatable ? passing : refused).has(error.status ?? 0);
}

function timedOut(call: Call, options: BothyOptions): TimeoutError {
  const seconds = call.timeoutSeconds ?? options.requestTimeoutSeconds ?? 60;
  return new TimeoutError({
    code: "timeout",
    detail: `${call.method ?? "GET"} ${call.path} had no answer within ${seconds} seconds.`,
    hint: call.timeoutSeconds === undefined ? "Give the client a larger requestTimeoutSeconds if the server is only slow." : "The server's log says what it was doing.",
  });
}

function notJson(call: Call, cause: SyntaxError): BothyError {
  return errorFromProblem({
    code: "internal",
    detail: `the answer to ${call.method ?? "GET"} ${call.path} is not valid JSON: ${cause.message}.`,
    hint: "Check that BOTHY_URL points to a Bothy server.",
    cause,
  });
}

/** Finds the innermost message: fetch wraps what really happened. */
function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.cause) return reason(error.cause);
  const { errors, code } = error as { errors?: unknown[]; code?: string };
  return code ?? (errors?.length ? reason(errors[0]) : error.message);
}
