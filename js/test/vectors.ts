// Plays the shared scenarios with this SDK: one step from each line of standard
// input, one answer to each; see test/vectors of the repository.
import { createInterface } from "node:readline";
import { Bothy, BothyError, type Command, type Language, type Sandbox, type SignalName } from "bothy";

type Json = Record<string, unknown>;

interface Step extends Json {
  do: string;
  sandbox: string;
  command: Command;
  path: string;
  from: string | number;
  to: string;
  pid: number;
  signal: SignalName | number;
  code: string;
  context: string;
  user: string;
}

const say = (answer: Json) => process.stdout.write(JSON.stringify(answer) + "\n");

/** The names of the scenarios are those of the API. */
const snake = (name: string) => name.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase());

/** Returns a value with the API's names. What is displayed and what is absent stay as they are. */
function plain(value: object): Json {
  const out: Json = {};
  for (const [name, field] of Object.entries(value)) {
    const inner = typeof field === "object" && field !== null && !Array.isArray(field) && !(field instanceof Date);
    out[snake(name)] = inner ? plain(field as object) : field;
  }
  return out;
}

const camel = (name: string) => name.replace(/_(.)/g, (_, c: string) => c.toUpperCase());

/** Returns those arguments of a step that a method takes. */
function pick(step: Step, ...names: string[]): Json {
  return Object.fromEntries(names.filter((name) => name in step).map((name) => [camel(name), step[name]]));
}

const execOptions = (step: Step) => pick(step, "cwd", "env", "user", "timeout_seconds", "stdin");

const plays: Record<string, (sbx: Sandbox, step: Step) => Promise<Json>> = {
  exec: async (sbx, step) => plain(await sbx.exec(step.command, execOptions(step))),
  stream: async (sbx, step) => {
    const output: Record<"stdout" | "stderr", Buffer[]> = { stdout: [], stderr: [] };
    let answer: Json = {};
    for await (const event of sbx.execStream(step.command, execOptions(step))) {
      if (event.isFinal) {
        answer = plain(event);
      } else {
        output[event.stream].push(Buffer.from(event.bytes));
        say({ text: event.data });
      }
    }
    for (const [name, pieces] of Object.entries(output)) {
      const raw = Buffer.concat(pieces);
      answer = { ...answer, [name]: raw.toString(), [`${name}_base64`]: raw.toString("base64"), [`${name}_bytes`]: raw.length };
    }
    return answer;
  },
  spawn: async (sbx, step) => ({ pid: (await sbx.spawn(step.command, execOptions(step))).pid }),
  processes: async (sbx) => ({ items: (await sbx.processes()).map(plain) }),
  follow: async (sbx, step) => {
    let from = Number(step.from ?? 0);
    let raw = Buffer.alloc(0);
    let exitCode: number | null = null;
    const stop = Number(step.stop_after ?? Infinity);
    for await (const event of sbx.process(step.pid).output(from)) {
      if (event.isFinal) {
        exitCode = event.exitCode;
        break;
      }
      if (raw.length === 0) from = event.offset;
      raw = Buffer.concat([raw, event.bytes]);
      if (from + raw.length >= stop) break;
    }
    const text = raw.toString();
    return { from, next: from + raw.length, text, line: text.split("\n")[0], exit_code: exitCode };
  },
  stdin: async (sbx, step) => {
    const process = sbx.process(step.pid);
    await process.write(step.data as string);
    if (step.eof) await process.closeStdin();
    return {};
  },
  signal: async (sbx, step) => (await sbx.process(step.pid).signal(step.signal), {}),
  kill: async (sbx, step) => (await sbx.process(step.pid).kill(), {}),
  logs: async (sbx, step) => ({ text: (await sbx.logs({ pid: step.pid })).items.map((item) => item.data).join("") }),
  events: async (sbx) => {
    const types: string[] = [];
    for await (const event of sbx.events()) {
      types.push(event.type);
      if (event.type === "sandbox.created") break;
    }
    return { types };
  },
  metrics: async (sbx) => plain(await sbx.metrics()),
  pause: async (sbx) => ({ snapshot_id: await sbx.pause() }),
  resume: async (sbx) => plain(await sbx.resume()),
  terminate: async (sbx) => (await sbx.terminate(), {}),
  code: async (sbx, step) => {
    const result = await sbx.runCode(step.code, pick(step, "language", "context", "timeout_seconds", "env"));
    return { ...plain(result), error: result.error ?? null };
  },
  contexts: async (sbx) => ({ items: (await sbx.contexts.list()).map(plain) }),
  context_create: async (sbx, step) => plain(await sbx.contexts.create(pick(step, "language", "cwd") as { language?: Language })),
  context_restart: async (sbx, step) => (await sbx.contexts.restart(step.context), {}),
  context_remove: async (sbx, step) => (await sbx.contexts.remove(step.context), {}),
  write: async (sbx, step) => {
    const content = "content" in step ? (step.content as string) : Buffer.from(step.content_base64 as string, "base64");
    const mode = "mode" in step ? { mode: parseInt(step.mode as string, 8) } : {};
    return plain(await sbx.files.write(step.path, content, { ...pick(step, "user"), ...mode }));
  },
  read: async (sbx, step) => {
    const raw = Buffer.from(await sbx.files.readBytes(step.path, pick(step, "user")));
    return { text: raw.toString(), base64: raw.toString("base64") };
  },
  list: async (sbx, step) => ({ items: (await sbx.files.list(step.path, pick(step, "depth", "user"))).map(plain) }),
  stat: async (sbx, step) => plain(await sbx.files.stat(step.path, pick(step, "user"))),
  exists: async (sbx, step) => ({ exists: await sbx.files.exists(step.path, pick(step, "user")) }),
  mkdir: async (sbx, step) => plain(await sbx.files.mkdir(step.path, pick(step, "user"))),
  move: async (sbx, step) => plain(await sbx.files.move(step.from as string, step.to, pick(step, "user"))),
  remove: async (sbx, step) => (await sbx.files.remove(step.path, pick(step, "user")), {}),
};

const client = new Bothy();
const sandboxes = new Map<string, Sandbox>();

async function play(step: Step): Promise<Json> {
  const sbx = sandboxes.get(step.sandbox) ?? (await client.sandboxes.get(step.sandbox));
  sandboxes.set(step.sandbox, sbx);
  const playing = plays[step.do];
  if (!playing) throw new Error(`nobody can do ${step.do}`);
  return playing(sbx, step);
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    say({ ok: await play(JSON.parse(line) as Step) });
  } catch (error) {
    if (!(error instanceof BothyError)) throw error;
    say({ error: { code: error.code, hint: error.hint, detail: error.detail } });
  }
}
