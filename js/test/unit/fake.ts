import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { Bothy, type BothyOptions } from "bothy";

/** A request as the fake server saw it. */
export interface Seen {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingMessage["headers"];
  body: Buffer;
  json: unknown;
  request: IncomingMessage;
}

/** Answers one request. */
export type Handler = (seen: Seen, response: ServerResponse) => void | Promise<void>;

/** A server that answers as a test tells it to, and remembers what it was asked. */
export class FakeServer implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly #routes = new Map<string, Handler[]>();
  readonly #upgraded: Socket[] = [];
  readonly #server: Server;
  url = "";

  private constructor() {
    this.#server = createServer((request, response) => void this.#handle(request, response));
  }

  static async start(): Promise<FakeServer> {
    const fake = new FakeServer();
    await new Promise<void>((resolve) => fake.#server.listen(0, "127.0.0.1", resolve));
    fake.url = `http://127.0.0.1:${(fake.#server.address() as AddressInfo).port}`;
    return fake;
  }

  /** Sets the answers to `METHOD /path`, in order; the last one repeats. */
  on(route: string, ...handlers: Handler[]): this {
    this.#routes.set(route, handlers);
    return this;
  }

  /** Sets what happens on an upgrade to another protocol. */
  onUpgrade(handler: (request: IncomingMessage, socket: Socket, head: Buffer) => void): this {
    this.#server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => {
      this.#upgraded.push(socket);
      handler(request, socket, head);
    });
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

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", this.url);
    const seen: Seen = { method: request.method ?? "", path: url.pathname, query: url.searchParams, headers: request.headers, body: Buffer.alloc(0), json: undefined, request };
    this.seen.push(seen);
    const handlers = this.#routes.get(`${seen.method} ${seen.path}`);
    const handler = handlers && handlers.length > 1 ? handlers.shift() : handlers?.[0];
    try {
      seen.body = await readAll(request);
      if (request.headers["content-type"] === "application/json") seen.json = JSON.parse(seen.body.toString());
    } catch {
      return; // The client hung up.
    }
    if (handler) await handler(seen, response);
    else problem(404, "not_found", `the fake server has no route ${seen.method} ${seen.path}`)(seen, response);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#upgraded) socket.destroy();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
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
    response.write("", () => response.destroy());
  };
}

/** Writes events to an answer that stays open. */
export function sendEvents(response: ServerResponse, ...list: unknown[]): void {
  if (!response.headersSent) response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.flushHeaders();
  for (const event of list) response.write(`data: ${JSON.stringify(event)}\n\n`);
}

/** Breaks the connection without an answer. */
export const hangUp: Handler = (seen) => {
  seen.request.socket.destroy();
};

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

