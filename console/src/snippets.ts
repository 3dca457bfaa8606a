/** The same request in four languages, to be copied. Values of secrets do not appear: they are read from the environment. */
import type { CreateParams, NetworkPolicy } from "bothy";

export const languages = ["CLI", "Python", "JavaScript", "curl"] as const;

/** Code that stands in the place of a value. */
class Raw {
  constructor(readonly code: string) {}
}

type Value = string | number | boolean | Raw | Value[] | { [name: string]: Value | undefined };

const snake = (name: string) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

const given = (o: object): [string, Value][] => Object.entries(o).filter(([, v]) => v !== undefined) as [string, Value][];

/** What was asked for, by the names of the API; labels, variables and host labels keep theirs. */
function wire(params: CreateParams, secret: (name: string) => Value): [string, Value][] {
  return given(params).map(([k, v]) => {
    if (k === "secrets") return [k, params.secrets!.map((s) => ({ name: s.name, value: secret(s.name), hosts: s.hosts }))];
    if (k === "network" && typeof v === "object") return [k, Object.fromEntries(given(v).map(([n, x]) => [snake(n), x]))];
    return [snake(k), v];
  });
}

const key = (name: string) => (/^[A-Za-z_]\w*$/.test(name) ? name : JSON.stringify(name));

function js(v: Value): string {
  if (v instanceof Raw) return v.code;
  if (Array.isArray(v)) return `[${v.map(js).join(", ")}]`;
  if (typeof v === "object") return `{ ${given(v).map(([k, x]) => `${key(k)}: ${js(x)}`).join(", ")} }`;
  return JSON.stringify(v);
}

function python(v: Value): string {
  if (v instanceof Raw) return v.code;
  if (Array.isArray(v)) return `[${v.map(python).join(", ")}]`;
  if (typeof v === "object") return `{${given(v).map(([k, x]) => `${JSON.stringify(k)}: ${python(x)}`).join(", ")}}`;
  return typeof v === "boolean" ? (v ? "True" : "False") : JSON.stringify(v);
}

/** A word of a shell's line. */
const word = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

function cli(p: CreateParams): string {
  const { mode, ...policy }: NetworkPolicy = typeof p.network === "object" ? p.network : { mode: p.network };
  const listed = Object.values(policy).some((list) => list);
  const flags: [string, unknown][] = [
    ["template", p.template], ["snapshot", p.snapshotId], ["name", p.name], ["size", p.size], ["engine", p.engine], ["cpu", p.cpu], ["memory", p.memoryMb], ["disk", p.diskMb],
    ["timeout", p.timeoutSeconds], ["on-timeout", p.onTimeout], ["idle", p.idleSeconds], ["auto-resume", p.autoResume], ["checkpoint", p.checkpointSeconds], ["on-host-loss", p.onHostLoss],
    ["network", listed && mode === "restricted" ? undefined : mode], ["preset", policy.presets], ["allow-domain", policy.allowDomains], ["allow-cidr", policy.allowCidrs], ["deny-cidr", policy.denyCidrs], ["allow-port", policy.allowPorts],
    ["budget", p.budget], ["require-acceleration", p.requireAcceleration], ["secret", p.secrets?.map((s) => `${s.name}@${s.hosts.join(",")}`)],
    ["host-label", pairs(p.hostLabels)], ["metadata", pairs(p.metadata)], ["env", pairs(p.env)],
  ];
  const words = flags.flatMap(([name, v]) => [v].flat().filter((x) => x !== undefined).map((x) => (x === true ? `--${name}` : `--${name} ${word(String(x))}`)));
  return ["bothy create", ...words].join(" ");
}

const pairs = (of?: Record<string, string>) => of && Object.entries(of).map(([k, v]) => `${k}=${v}`);

/** Code that creates a sandbox with these parameters. */
export function snippet(language: (typeof languages)[number], params: CreateParams, server: string): string {
  switch (language) {
    case "CLI": return cli(params);
    case "Python": {
      const arguments_ = wire(params, (name) => new Raw(`os.environ[${JSON.stringify(name)}]`)).map(([k, v]) => `${k}=${python(v)}`);
      return `${params.secrets ? "import os\n\n" : ""}from bothy import Sandbox\n\nsbx = Sandbox.create(${arguments_.join(", ")})`;
    }
    case "JavaScript": {
      const secrets = params.secrets?.map(({ name, hosts }) => ({ name, value: new Raw(`process.env.${name}`), hosts }));
      return `import { Bothy } from "bothy";\n\nconst sbx = await new Bothy().sandboxes.create(${js({ ...params, secrets } as Value)});`;
    }
    case "curl": {
      const body = JSON.stringify(Object.fromEntries(wire(params, (name) => `\u0000${name}\u0000`)), undefined, 1).replaceAll("'", "\\u0027");
      return `curl -fsS ${server}/v1/sandboxes -H "Authorization: Bearer $BOTHY_API_KEY" -H 'Content-Type: application/json' -d '${body.replace(/\\u0000(\w+)\\u0000/g, `'"$$$1"'`)}'`;
    }
  }
}
