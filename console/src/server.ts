/** The server as the pages see it: the SDK with the visitor's login. */
import { Bothy, BothyError, type SandboxInfo } from "bothy";

export const bothy = new Bothy({ browserLogin: true });

export interface Login {
  project: string;
  token_name: string;
  scopes: string[];
  operator: boolean;
  expires_at: string;
  version: string;
}

async function session(method: string, body?: object): Promise<Login | undefined> {
  const answer = await fetch("/console/session", {
    method,
    headers: { "X-Bothy-Console": "1", "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  if (answer.status === 204 || (method === "GET" && answer.status === 401)) return undefined;
  const said = (await answer.json()) as Login & { detail?: string; hint?: string };
  if (!answer.ok) throw new Error([said.detail, said.hint].filter(Boolean).join(" "));
  return said;
}

export const whoAmI = () => session("GET");
export const logIn = (body: { key: string } | { code: string }) => session("POST", body);
export const logOut = () => session("DELETE");

export const may = (login: Login, scope: string) => login.scopes.includes(scope) || login.scopes.includes("admin");

export const textOf = (error: unknown) =>
  error instanceof BothyError ? [error.detail, error.hint].filter(Boolean).join(" ") : error instanceof Error ? error.message : String(error);

export const hasEnded = (error: unknown) => error instanceof BothyError && error.status === 401;

export const isLive = (s: SandboxInfo) => s.state !== "stopped" && s.state !== "failed";
