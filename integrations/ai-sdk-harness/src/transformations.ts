import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { HarnessV1RequestTransformation } from "@ai-sdk/harness";
import type { Sandbox, Secret } from "bothy";
import { unsupported } from "./policy.js";

type Match = HarnessV1RequestTransformation["match"];

/** What the names of secrets that are rules begin with. */
const prefix = "AI_SDK_HARNESS_";

/** One header of one host, with the match that it was asked for. */
interface Rule {
  secret: Secret;
  match: Match;
}

/**
 * The rules of a sandbox, each a brokered secret: the gateway sets the header in requests
 * to the host, and the value is never inside.
 */
export class Transformations {
  readonly #sandbox: Sandbox;
  readonly #given: Secret[];
  readonly #wholeHosts: boolean;
  #rules: Map<string, Rule> | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(sandbox: Sandbox, given: Secret[], wholeHosts: boolean) {
    this.#sandbox = sandbox;
    this.#given = given;
    this.#wholeHosts = wholeHosts;
  }

  /** Replaces all rules. */
  set(rules: readonly HarnessV1RequestTransformation[]): Promise<void> {
    return this.#inTurn(async () => this.#apply(new Map(), rules));
  }

  /** Adds rules to those there are. */
  add(rules: readonly HarnessV1RequestTransformation[]): Promise<void> {
    return this.#inTurn(async () => this.#apply(this.#rules ?? new Map<string, Rule>(), rules, this.#rules === undefined));
  }

  async #apply(before: Map<string, Rule>, rules: readonly HarnessV1RequestTransformation[], first = false): Promise<void> {
    const next = new Map(before);
    for (const rule of rules.flatMap((one) => rulesOf(one, this.#wholeHosts))) {
      const { name, hosts, header, value } = rule.secret;
      const other = next.get(name);
      if (other && other.secret.value !== value && !isDeepStrictEqual(other.match, rule.match)) {
        throw unsupported(`there are two values for the header ${header} of ${hosts[0]}, and one header of a host has one value. Use one credential for it.`);
      }
      next.set(name, rule);
    }
    const secrets = [...this.#given, ...[...next.values()].map(({ secret }) => secret)];
    if (first) await this.#keepNothingUnseen(secrets);
    await this.#sandbox.update({ secrets });
    this.#rules = next;
  }

  /** Values are never told, so that a session that is resumed cannot add to what another program has set. */
  async #keepNothingUnseen(secrets: Secret[]): Promise<void> {
    const { secretNames = [] } = await this.#sandbox.refresh();
    const lost = secretNames.filter((name) => !secrets.some((secret) => secret.name === name));
    if (lost.length === 0) return;
    const whose = lost.every((name) => name.startsWith(prefix)) ? "rules of an earlier session" : `secrets (${lost.join(", ")})`;
    throw unsupported(`the sandbox has ${whose} whose values are not told, and which would be lost. Replace them with setRequestTransformations, or give them as secrets to bothySandbox.`);
  }

  /** Changes one after the other, since each replaces all that there is. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => undefined);
    return done;
  }
}

/** Says a rule as secrets, one for each header. */
function rulesOf({ match, transform }: HarnessV1RequestTransformation, wholeHosts: boolean): Rule[] {
  const { host } = match;
  if (host === "*") throw unsupported("a request transformation for every host would give its value to whoever is asked. Name the host.");
  const narrow = (["path", "method", "queryString"] as const).filter((part) => match[part] !== undefined);
  if (narrow.length > 0 && !wholeHosts) {
    throw unsupported(`the request transformation for ${host} is for a ${narrow.map((part) => words[part]).join(" and a ")}, and Bothy's are for all requests to a host. Leave that out, or set wholeHosts, which applies such rules to the whole host.`);
  }
  const set = new Map(Object.entries(transform.headers).map(([name, value]) => [name.toLowerCase(), value]));
  for (const { key, value } of match.headers ?? []) {
    // A placeholder that the rule overwrites: without it the request could do nothing with the header.
    if (key && "exact" in key && set.has(key.exact.toLowerCase()) && value && "exact" in value) continue;
    throw unsupported(`the request transformation for ${host} looks at a header that it does not replace, which Bothy's cannot. Match the placeholder in a header that transform sets.`);
  }
  return [...set].map(([header, value]) => ({ match, secret: { name: nameOf(host, header), value, hosts: [host], header, override: true } }));
}

const words = { path: "path", method: "method", queryString: "query" };

function nameOf(host: string, header: string): string {
  return prefix + createHash("sha256").update(`${host.toLowerCase()} ${header}`).digest("hex").slice(0, 16).toUpperCase();
}
