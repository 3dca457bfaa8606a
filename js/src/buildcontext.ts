/**
 * The folder that a build takes files from, less what `.dockerignore` names.
 *
 * @module
 * @internal
 */
import { InvalidArgumentError } from "./errors.js";
import { tarEnd, tarHeader, tarPadding } from "./tar.js";
import { type Local, local, packFolder } from "./transfer.js";

/**
 * Yields a tar of a build's context.
 *
 * @param dockerfile The path of the Dockerfile in it, which may have a .dockerignore of its own.
 * @param only What is copied, with wildcards. Default: all of it.
 */
export async function* packContext(folder: string, dockerfile: string, only?: readonly string[]): AsyncGenerator<Uint8Array, void, undefined> {
  const at = await local();
  if (!(await at.fs.stat(folder).catch(() => undefined))?.isDirectory()) {
    throw new InvalidArgumentError({ code: "invalid_argument", detail: `${folder} cannot be the context: it is not a folder` });
  }
  const ignored = new Ignored(await ignoreFile(at, folder, dockerfile));
  const roots = only?.map(fixedPart) ?? [""];
  const needed = (name: string): boolean => roots.some((root) => above(root, name) || above(name, root));
  // The server reads what is ignored, too.
  const wanted = (name: string): boolean => name.endsWith(".dockerignore") || (needed(name) && !ignored.has(name));
  const enter = (name: string): boolean => needed(name) && (ignored.excepts || !ignored.has(name));
  yield* packFolder(at, folder, { files: 0, bytes: 0, skipped: [] }, { wanted, enter });
}

/** Returns a tar of files by their paths. In a browser, too: it reads nothing that is ignored. */
export async function packFiles(files: Readonly<Record<string, Blob>>, dockerfile: string): Promise<Blob> {
  const ignored = new Ignored((await (files[`${dockerfile}.dockerignore`] ?? files[".dockerignore"])?.text()) ?? "");
  const parts: BlobPart[] = [];
  for (const [name, content] of Object.entries(files).sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (ignored.has(name) && !name.endsWith(".dockerignore") && name !== dockerfile) continue;
    const head = { name, type: "file", mode: 0o644, mtime: 0, size: content.size } as const;
    parts.push(tarHeader(head) as BlobPart, content, tarPadding(content.size) as BlobPart);
  }
  return new Blob([...parts, tarEnd as BlobPart]);
}

async function ignoreFile({ fs, path }: Local, folder: string, dockerfile: string): Promise<string> {
  for (const name of [`${dockerfile}.dockerignore`, ".dockerignore"]) {
    const text = await fs.readFile(path.join(folder, name), "utf8").catch(() => undefined);
    if (text !== undefined) return text;
  }
  return "";
}

function clean(path: string): string {
  const out: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") out.pop();
    else if (part && part !== ".") out.push(part);
  }
  return out.join("/");
}

/** Returns the folder or file that a pattern of COPY begins with, without wildcards. */
function fixedPart(pattern: string): string {
  const parts = clean(pattern).split("/");
  const wild = parts.findIndex((part) => /[*?[\\]/.test(part));
  return parts.slice(0, wild < 0 ? undefined : wild).join("/");
}

function above(folder: string, name: string): boolean {
  return folder === "" || name === folder || name.startsWith(`${folder}/`);
}

/** What the lines of a `.dockerignore` name: the last line that fits decides. */
export class Ignored {
  readonly #rules: { out: boolean; fits: RegExp }[] = [];

  constructor(text: string) {
    for (const line of text.replace(/^\uFEFF/, "").split(/\r?\n/)) {
      let pattern = line.trim();
      if (line.startsWith("#") || !pattern) continue;
      const out = !pattern.startsWith("!");
      if (!out) pattern = pattern.slice(1).trim();
      if (pattern) this.#rules.push({ out, fits: compile(clean(pattern)) });
    }
  }

  /** Whether something inside of an ignored folder may be kept. */
  get excepts(): boolean {
    return this.#rules.some((rule) => !rule.out);
  }

  /** Tells whether a path is ignored, by itself or with a folder above it. */
  has(name: string): boolean {
    const parts = name.split("/");
    const paths = parts.map((_, i) => parts.slice(0, i + 1).join("/"));
    let ignored = false;
    for (const { out, fits } of this.#rules) if (out !== ignored && paths.some((path) => fits.test(path))) ignored = out;
    return ignored;
  }
}

function compile(pattern: string): RegExp {
  let out = "";
  for (let i = 0; i < pattern.length; ) {
    const sign = pattern[i++]!;
    if (sign === "*" && pattern[i] === "*") {
      const slash = pattern[++i] === "/";
      if (slash) i++;
      const rest = pattern.slice(i);
      const plainEnd = i === 2 && !slash && !/[*?[\]\\]/.test(rest);
      out += !rest || plainEnd ? ".*" : "(.*/)?";
    } else if (sign === "*") out += "[^/]*";
    else if (sign === "?") out += "[^/]";
    else if (sign === "\\" && i < pattern.length) out += `\\${pattern[i++]}`;
    else out += ".+()|{}$".includes(sign) ? `\\${sign}` : sign;
  }
  try {
    return new RegExp(`^(?:${out})$`, "s");
  } catch (cause) {
    throw new InvalidArgumentError({ code: "invalid_argument", detail: `.dockerignore has a pattern that cannot be read: ${JSON.stringify(pattern)}`, cause });
  }
}
