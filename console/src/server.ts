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

const fields: Record<string, string> = { memory_mb: "Memory", disk_mb: "Disk", cpu: "CPUs", timeout_seconds: "Time-out", idle_seconds: "Idle", checkpoint_seconds: "Checkpoints", allow_domains: "Host names", allow_ports: "Ports" };

/** An error of the API in the words of the pages: their names of fields, and no hint that leads to the API's description. */
const plain = (text: string) => text.replace(/\b[a-z]+_[a-z]+\b|\bcpu\b/g, (word) => fields[word] ?? word)
  .replace(/expected (?:number|integer) >= (\S+?),/g, "give at least $1,").replace(/expected (?:number|integer) <= (\S+?),/g, "give at most $1,");

export const textOf = (error: unknown) => {
  if (!(error instanceof BothyError)) return error instanceof Error ? error.message : String(error);
  const hint = error.hint?.startsWith("GET /openapi.json") ? undefined : error.hint;
  return [plain(error.detail).replace(/[^.!?…]$/, hint ? "$&." : "$&"), hint].filter(Boolean).join(" ");
};

export const hasEnded = (error: unknown) => error instanceof BothyError && error.status === 401;

export const isLive = (s: SandboxInfo) => s.state !== "stopped" && s.state !== "failed";
