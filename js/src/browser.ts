import type { Sandbox } from "./sandbox.js";
import type { CallOptions } from "./transport.js";

const port = 9222;

/** For how long the address of a browser can be used. */
export interface BrowserOptions extends CallOptions {
  /** For how long it can be used; one hour unless given. */
  expiresSeconds?: number;
}

/** Chromium in a sandbox of the template `browser`, for clients of the DevTools protocol. */
export class Browser {
  readonly #sandbox: Sandbox;

  /** @internal Use {@link Sandbox.browser}. */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /**
   * Returns an address for Playwright, Puppeteer and other clients, of the form `http://…`. Anyone who has it
   * can control the browser, without a key, until it ends. A `ConflictError` says that no browser runs in the sandbox.
   */
  async cdpUrl(options: BrowserOptions = {}): Promise<string> {
    return (await this.#sandbox.createLink(port, { ...options, kind: "cdp" })).url;
  }

  /**
   * Returns the same address as that of a WebSocket, of the form `ws://…`, for clients that take no other. It stays
   * valid when the browser is started again.
   */
  async wsUrl(options: BrowserOptions = {}): Promise<string> {
    return (await this.cdpUrl(options)).replace(/^http/, "ws");
  }
}
