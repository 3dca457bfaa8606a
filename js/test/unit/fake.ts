import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Bothy, type BothyOptions } from "bothy";
import { ServerSocket } from "./socket.js";

/** A request as the fake server saw it. */
export interface Seen {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: Record<string, string | undefined>;
  body: Buffer;
  json: unknown;
  /** Resolves when the client hangs up before it has the whole answer. */
  gone: Promise<void>;
}

/** Answers one request. */
export type Handler = (seen: Seen, response: Response) => void | Promise<void>;

/** Tells the program what to do about one request. */
export type Order = (what: string, more?: { status?: number; headers?: Record<string, string>; data?: string }) => void;

/** The answer to one request, byte by byte if need be. */
export class Response {
  readonly #order: Order;
  #begun = false;

  constructor(order: Order) {
    this.#order = order;
  }

  get headersSent(): boolean {
    return this.#begun;
  }

  writeHead(status: number, headers: Record<string, string> = {}): this {
    this.#begun = true;
    this.#order("head", { status, headers });
    return this;
  }

  write(data: string | Uint8Array): this {
    this.#begun = true;
    this.#order("write", { data: Buffer.from(data).toString("base64") });
    return this;
  }

  end(data?: string | Uint8Array): void {
    if (data !== undefined) this.write(data);
    this.#order("end");
  }

  /** Breaks the connection. */
  destroy(): void {
    this.#order("drop");
  }
}

/** What the program says of a request: that it came, a frame of a WebSocket, or that the client hung up. */
interface Report {
  id: number;
  method?: string;
  target: string;
  headers: Record<string, string | undefined>;
  body?: string;
  op?: number;
  gone?: boolean;
}

let program: Promise<string> | undefined;

/** Starts the program, api/apitest/fakeapi, which ends with this process. Resolves with its address. */
async function start(): Promise<string> {
  const path = process.env["BOTHY_FAKEAPI"] ?? fileURLToPath(new URL("../../../../bin/fakeapi", import.meta.url));
  if (!existsSync(path)) throw new Error(`${path} is missing: run \`make bin/fakeapi\``);
  const child = spawn(path, { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  child.unref();
  (child.stdin as unknown as Socket).unref();
  child.stdout.destroy();
  return line;
}

/**
 * The real API over sandboxes in memory, in a program of its own. It tells each request to
 * the test first, which may answer it, and remembers it.
 */
export class FakeServer implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly #routes = new Map<string, Handler[]>();
  readonly #listeners = new Map<number, (report: Report) => void>();
  readonly #control: Socket;
  #onUpgrade: ((server: ServerSocket) => void) | undefined;
  url = "";

  private constructor(control: Socket) {
    this.#control = control;
  }

  static async start(): Promise<FakeServer> {
    const address = await (program ??= start());
    const at = address.lastIndexOf(":");
    const fake = new FakeServer(connect(Number(address.slice(at + 1)), address.slice(0, at)));
    const lines = createInterface(fake.#control);
    fake.#control.write(`${JSON.stringify({ key: "bothy_test" })}\n`);
    const [first] = (await once(lines, "line")) as [string];
    fake.url = (JSON.parse(first) as { url: string }).url;
    lines.on("line", (line: string) => fake.#hear(JSON.parse(line) as Report));
    return fake;
  }

  /** Sets the answers to `METHOD /path`, in order; the last one repeats. What has none is answered by the API. */
  on(route: string, ...handlers: Handler[]): this {
    this.#routes.set(route, handlers);
    return this;
  }

  /** Sets what happens on an upgrade to a WebSocket. */
  onUpgrade(handler: (server: ServerSocket) => void): this {
    this.#onUpgrade = handler;
    return this;
  }

  /** A client of this server. */
  client(options: BothyOptions = {}): Bothy {
    return new Bothy({ url: this.url, apiKey: "bothy_test", ...options });
  }

  /** The requests to a route, in order. */
  requests(route: string): Seen[] {
    return this.seen.filter((seen) => `${seen.method} ${seen.path}` === route);
  }

  #hear(report: Report): void {
    if (report.method !== undefined) this.#begin(report);
    else this.#listeners.get(report.id)?.(report);
  }

  #begin({ id, method = "", target, headers, body = "", gone }: Report): void {
    const order: Order = (what, more = {}) => void this.#control.write(`${JSON.stringify({ id, do: what, ...more })}\n`);
    if (headers["upgrade"] !== undefined && this.#onUpgrade) {
      const server = new ServerSocket(target, headers, order);
      this.#listeners.set(id, (report) => server.hear(report.gone ? undefined : { op: report.op ?? -1, payload: Buffer.from(report.body ?? "", "base64") }));
      this.#onUpgrade(server);
      return;
    }
    const url = new URL(target, this.url);
    const left = new Promise<void>((resolve) => this.#listeners.set(id, () => resolve()));
    const seen: Seen = { method, path: url.pathname, query: url.searchParams, headers, body: Buffer.from(body, "base64"), json: undefined, gone: left };
    this.seen.push(seen);
    if (gone) return; // In the middle of its body.
    if (headers["content-type"] === "application/json" && seen.body.length > 0) seen.json = JSON.parse(seen.body.toString());
    const handlers = this.#routes.get(`${seen.method} ${seen.path}`);
    const handler = handlers && handlers.length > 1 ? handlers.shift() : handlers?.[0];
    if (handler) void handler(seen, new Response(order));
    else order("pass");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#control, "close");
    this.#control.end();
    await closed;
  }
}

/** Answers with JSON. */
export function json(value: unknown, status = 200): Handler {
  return (_, response) => {
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  };
}

/** Answers with nothing. */
export const noContent: Handler = (_, response) => {
  response.writeHead(204).end();
};

/** Answers with raw bytes. */
export function bytes(content: Uint8Array, headers: Record<string, string> = {}): Handler {
  return (_, response) => {
    response.writeHead(200, { "Content-Type": "application/octet-stream", ...headers }).end(content);
  };
}

/** Answers with an error. */
export function problem(status: number, code: string, detail: string, extra: { hint?: string; headers?: Record<string, string> } = {}): Handler {
  return (_, response) => {
    response.writeHead(status, { "Content-Type": "application/problem+json", "X-Request-Id": "req_1", ...extra.headers });
    response.end(JSON.stringify({ status, code, detail, hint: extra.hint }));
  };
}

/** Answers with a stream of events and ends it. */
export function events(...list: unknown[]): Handler {
  return (_, response) => {
    sendEvents(response, ...list);
    response.end();
  };
}

/** Answers with a stream of events, and then breaks the connection. */
export function brokenEvents(...list: unknown[]): Handler {
  return (_, response) => {
    sendEvents(response, ...list);
    response.destroy();
  };
}

/** Writes events to an answer that stays open. */
export function sendEvents(response: Response, ...list: unknown[]): void {
  if (!response.headersSent) response.writeHead(200, { "Content-Type": "text/event-stream" }).write("");
  for (const event of list) response.write(`data: ${JSON.stringify(event)}\n\n`);
}

/** Breaks the connection without an answer. */
export const hangUp: Handler = (_, response) => response.destroy();

/** A sandbox as the server describes it. */
export function sandbox(fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    id: "sbx_1",
    state: "running",
    template: "python-3.12",
    engine: "gvisor",
    cpu: 1,
    memory_mb: 512,
    disk_mb: 2048,
    network: "off",
    created_at: "2026-01-02T03:04:05Z",
    timeout_seconds: 600,
    on_timeout: "terminate",
    metadata: { team_name: "red" },
    ...fields,
  };
}

