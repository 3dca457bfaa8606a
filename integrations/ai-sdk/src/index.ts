/**
 * Tools for the AI SDK that work in a Bothy sandbox.
 *
 * @packageDocumentation
 */
import { jsonSchema, tool } from "ai";
import type { Sandbox } from "bothy";
import { cap } from "./cap.js";
import { readLines } from "./lines.js";
import { checkVersion } from "./tested.js";

/** How {@link bothyTools} work. */
export interface ToolOptions {
  /** Ends a command, or code, after so long, unless the model asks for less. Default 120. */
  timeoutSeconds?: number;
  /** How many bytes of each text the model sees; the middle of a longer one is left out. Default 32 KiB. */
  maxOutputBytes?: number;
  /** Where commands start. Default `/workspace`. */
  cwd?: string;
  /** Added to the environment of commands. */
  env?: Record<string, string>;
}

/** What a command, or a piece of code, has come to. */
export interface Outcome {
  exitCode: number;
  stdout: string;
  stderr: string;
  /** What a limit has done to it. */
  note?: string;
}

interface Call {
  abortSignal?: AbortSignal;
}

/**
 * Returns tools for a sandbox: `bash`, `readFile`, `writeFile`, `editFile` and `listFiles`.
 * Whoever made the sandbox ends it. An abort of the model's run ends the command that runs.
 *
 * ```ts
 * const { text } = await generateText({ model, prompt, tools: bothyTools(sandbox), stopWhen: stepCountIs(20) });
 * ```
 */
export function bothyTools(sandbox: Sandbox, options: ToolOptions = {}) {
  const { timeoutSeconds: most = 120, maxOutputBytes = 32 << 10, cwd, env } = options;
  if (!(most > 0)) throw new RangeError(`timeoutSeconds is ${most}: it must be more than 0`);
  if (!Number.isSafeInteger(maxOutputBytes) || maxOutputBytes < 1) throw new RangeError(`maxOutputBytes is ${maxOutputBytes}: it must be a whole number from 1 on`);
  checkVersion();
  return {
    bash: tool({
      description: `Run a Bash command in an isolated Linux sandbox. Each command starts in ${cwd ?? "/workspace"}; files stay, variables and the directory do not. It is ended after ${most} seconds.`,
      inputSchema: object<{ command: string; timeoutSeconds?: number }>({
        command: text("The command line."),
        timeoutSeconds: { type: "number", exclusiveMinimum: 0, maximum: most, description: "End the command after so long." },
      }, ["command"]),
      execute: async ({ command, timeoutSeconds = most }, { abortSignal }: Call): Promise<Outcome> => {
        const limit = Math.min(timeoutSeconds, most);
        const { exitCode, stdout, stderr, timedOut, truncated, hint } = await sandbox.exec(command, { cwd, env, timeoutSeconds: limit, signal: abortSignal });
        const notes = [timedOut && `The command ran out of its ${limit} seconds and was ended.`, truncated && "The sandbox itself left out output, because there was too much.", hint];
        const note = notes.filter(Boolean).join(" ");
        return { exitCode, stdout: cap(stdout, maxOutputBytes), stderr: cap(stderr, maxOutputBytes), ...(note && { note }) };
      },
    }),
    readFile: tool({
      description: "Read lines of a text file in the sandbox. Where `more` is true the file goes on behind `lastLine`.",
      inputSchema: object<{ path: string; firstLine?: number; lines?: number }>({
        path: text("The file. A relative path starts at /workspace."),
        firstLine: { type: "integer", minimum: 1, description: "The first line to read, from 1 on." },
        lines: { type: "integer", minimum: 1, description: "How many lines to read. Default 2000." },
      }, ["path"]),
      execute: ({ path, firstLine = 1, lines = 2000 }, { abortSignal }: Call) => readLines(sandbox, path, firstLine, lines, maxOutputBytes, abortSignal),
    }),
    writeFile: tool({
      description: "Write a whole file in the sandbox, and the folders above it. What was there is replaced.",
      inputSchema: object<{ path: string; content: string; encoding?: "utf8" | "base64" }>({
        path: text("The file. A relative path starts at /workspace."),
        content: text("All of its content."),
        encoding: { type: "string", enum: ["utf8", "base64"], description: "base64 for a binary file. Default utf8." },
      }, ["path", "content"]),
      execute: async ({ path, content, encoding }, { abortSignal }: Call): Promise<{ path: string; size: number }> => {
        const info = await sandbox.files.write(path, encoding === "base64" ? fromBase64(content) : content, { signal: abortSignal });
        return { path: info.path, size: info.size };
      },
    }),
    editFile: tool({
      description: "Replace a piece of a text file in the sandbox. The piece must be there exactly once, unless all are to be replaced.",
      inputSchema: object<{ path: string; find: string; replace: string; all?: boolean }>({
        path: text("The file. A relative path starts at /workspace."),
        find: { ...text("What is replaced, exactly as it is in the file."), minLength: 1 },
        replace: text("What takes its place."),
        all: { type: "boolean", description: "Replace every one." },
      }, ["path", "find", "replace"]),
      execute: async ({ path, find, replace, all = false }, { abortSignal }: Call): Promise<{ path: string; replaced: number }> => {
        const pieces = textOf(await sandbox.files.readBytes(path, { signal: abortSignal }), path).split(find);
        const replaced = pieces.length - 1;
        if (replaced === 0) throw new Error(`${path} does not contain that piece. Read the file, and give it exactly as it is there.`);
        if (replaced > 1 && !all) throw new Error(`${path} contains that piece ${replaced} times. Give more of what is around it, or replace all.`);
        await sandbox.files.write(path, pieces.join(replace), { signal: abortSignal });
        return { path, replaced };
      },
    }),
    listFiles: tool({
      description: "List a folder of the sandbox.",
      inputSchema: object<{ path?: string; depth?: number }>({
        path: text("The folder. Default /workspace."),
        depth: { type: "integer", minimum: 1, maximum: 10, description: "How many levels deep. Default 1." },
      }, []),
      execute: async ({ path = ".", depth }, { abortSignal }: Call): Promise<string> => {
        const entries = await sandbox.files.list(path, { depth, signal: abortSignal });
        const lines = entries.map(({ path: at, type, size }) => (type === "file" ? `${at} (${size} bytes)` : type === "directory" ? `${at}/` : `${at} (${type})`));
        return cap(lines.join("\n"), maxOutputBytes);
      },
    }),
  };
}

/** The tools that {@link bothyTools} returns. */
export type BothyTools = ReturnType<typeof bothyTools>;

function text(description: string): { type: "string"; description: string } {
  return { type: "string", description };
}

function object<T>(properties: NonNullable<Schema["properties"]>, required: (keyof T & string)[]) {
  return jsonSchema<T>({ type: "object", properties, required, additionalProperties: false });
}

type Schema = Exclude<Awaited<Parameters<typeof jsonSchema>[0]>, (...args: never[]) => unknown>;

function fromBase64(content: string): Uint8Array {
  const plain = content.replace(/\s/g, "");
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(plain) || plain.length % 4 !== 0) throw new Error("the content is not base64. Nothing was written.");
  return Buffer.from(plain, "base64");
}

function textOf(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error(`${path} is a binary file, not UTF-8 text. Change it with commands.`);
  }
}
