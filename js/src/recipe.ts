import { InvalidArgumentError } from "./errors.js";
import type { Template as TemplateInfo } from "./types.js";

/**
 * When a started program is ready: a port that it listens on; a URL that answers; the absolute
 * path of a file; any other text is a command that succeeds. An object says which.
 */
export type Ready = number | string | { port: number } | { url: string } | { file: string } | { command: string };

/** A program that is already running in new sandboxes. */
export interface StartOptions {
  /** When it is ready. Default: at once. */
  ready?: Ready;
  /** Who runs it. Default: the user who runs commands in sandboxes. */
  user?: string;
  /** Where it starts. */
  cwd?: string;
  /** How long it may take to be ready. Default 60. */
  timeoutSeconds?: number;
  /** The processors of sandboxes that do not request any. Default 1. */
  cpu?: number;
  /** The memory of sandboxes with it, in MiB. Default 512. */
  memoryMb?: number;
  /** Their disk, in MiB. Default 2048. */
  diskMb?: number;
}

/** Options of {@link TemplateRecipe.copy}. */
export interface CopyOptions {
  /** Who owns the files, such as `user` or `1000:1000`. Default root. */
  user?: string;
  /** Their permissions, such as 0o755. Default: unchanged. */
  mode?: number;
}

interface Parts {
  base: string;
  lines: readonly string[];
  sources: readonly string[];
  runsAs: string;
  started?: object;
}

/**
 * A template to be built, described step by step. It never changes: each step returns another
 * recipe, so that one can be the beginning of several. {@link Templates.build} builds it.
 */
export class TemplateRecipe {
  readonly #parts: Parts;

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Begins with a template, or with an image in a registry. */
  static from(base: string): TemplateRecipe {
    return new TemplateRecipe({ base: oneWord(base), lines: [], sources: [], runsAs: "" });
  }

  /** The text of the Dockerfile that is built. */
  get dockerfile(): string {
    return `${[`FROM ${this.#parts.base}`, ...this.#parts.lines].join("\n")}\n`;
  }

  /** What is copied from the build's context. */
  get sources(): readonly string[] {
    return this.#parts.sources;
  }

  /** The program that is already running in new sandboxes, as the API takes it. */
  get started(): object | undefined {
    return this.#parts.started;
  }

  /** Installs Debian's or Ubuntu's packages, such as `ffmpeg` or `git=1:2.39*`. */
  apt(...packages: string[]): TemplateRecipe {
    const names = packages.map(shellWord).join(" ");
    const install = `DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${names}`;
    return this.#install(packages, `RUN ${words("/bin/sh", "-c", `apt-get update && ${install} && rm -rf /var/lib/apt/lists/*`)}`);
  }

  /** Installs Python packages, such as `pandas==2.*`, for all users. */
  pip(...packages: string[]): TemplateRecipe {
    return this.#install(packages, `RUN --mount=type=cache,target=/root/.cache/pip ${words("pip", "install", ...packages)}`);
  }

  /** Installs Node's packages, such as `typescript@5`, for all users. */
  npm(...packages: string[]): TemplateRecipe {
    return this.#install(packages, `RUN --mount=type=cache,target=/root/.npm ${words("npm", "install", "--global", ...packages)}`);
  }

  /**
   * Copies files or folders of the build's context.
   *
   * @param source Paths in the context, with `*`, `?` and `[…]` as in Dockerfiles.
   * @param target Where to; a folder where it ends with `/` or there are several sources.
   */
  copy(source: string | readonly string[], target: string, { user, mode }: CopyOptions = {}): TemplateRecipe {
    const sources = typeof source === "string" ? [source] : source;
    if (sources.length === 0 || !target) throw invalid("copy wants a source and a target");
    const options = [...(user ? [`--chown=${oneWord(user)}`] : []), ...(mode === undefined ? [] : [`--chmod=${mode.toString(8)}`])];
    return this.#line(["COPY", ...options, words(...sources, target)].join(" "), { sources: [...this.#parts.sources, ...sources] });
  }

  /** Runs a command with `sh`, as root or as who {@link user} has named. One that fails ends the build. */
  run(command: string): TemplateRecipe {
    if (!command) throw invalid("run wants a command");
    return this.#line(`RUN ${words("/bin/sh", "-c", command)}`);
  }

  /** Sets environment variables, for later steps and for commands in sandboxes. */
  env(variables: Record<string, string>): TemplateRecipe {
    let recipe: TemplateRecipe = this;
    for (const [name, value] of Object.entries(variables)) {
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw invalid(`${JSON.stringify(name)} cannot be the name of a variable`);
      if (/[\r\n]/.test(value)) throw invalid(`the variable ${name} wants one line of text, not ${JSON.stringify(value)}`);
      recipe = recipe.#line(`ENV ${name}="${value.replace(/[\\"$]/g, "\\$&")}"`);
    }
    return recipe;
  }

  /** Creates a folder, and has later steps and commands in sandboxes start there. */
  workdir(path: string): TemplateRecipe {
    if (!path || /[\r\n]/.test(path)) throw invalid(`a folder wants one line of text, not ${JSON.stringify(path)}`);
    return this.#line(`WORKDIR ${path}`);
  }

  /** Has later steps and commands in sandboxes run as this user. */
  user(name: string): TemplateRecipe {
    return this.#line(`USER ${oneWord(name)}`, { runsAs: name });
  }

  /**
   * Has a program already running when a sandbox starts. It is started when the template is built,
   * and new sandboxes wake up with it running.
   *
   * @param command What `sh` runs in the background.
   */
  start(command: string, { ready, ...options }: StartOptions = {}): TemplateRecipe {
    if (!command) throw invalid("start wants a command");
    const started = { command, ...(ready === undefined ? {} : { ready: readyOf(ready) }), ...options };
    return new TemplateRecipe({ ...this.#parts, started });
  }

  #line(text: string, change: Partial<Parts> = {}): TemplateRecipe {
    return new TemplateRecipe({ ...this.#parts, ...change, lines: [...this.#parts.lines, text] });
  }

  #install(packages: readonly string[], line: string): TemplateRecipe {
    if (packages.length === 0 || packages.some((name) => !name)) throw invalid("name the packages to install");
    const { runsAs } = this.#parts;
    if (runsAs === "" || runsAs === "root") return this.#line(line);
    return this.#line("USER root").#line(line).#line(`USER ${runsAs}`);
  }
}

/** What sandboxes start from. */
export type Template = TemplateInfo;

/**
 * Begins a recipe: `Template("python-3.12").apt("ffmpeg").pip("pandas==2.*")`.
 *
 * @param base A template of the server, or an image in a registry.
 */
export function Template(base: string): TemplateRecipe {
  return TemplateRecipe.from(base);
}

function invalid(detail: string): InvalidArgumentError {
  return new InvalidArgumentError({ code: "invalid_argument", detail });
}

function words(...list: string[]): string {
  return JSON.stringify(list);
}

function oneWord(text: string): string {
  if (!text || /\s/.test(text)) throw invalid(`${JSON.stringify(text)} must be one word`);
  return text;
}

function shellWord(text: string): string {
  return /^[A-Za-z0-9@%+=:,./_-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

function readyOf(ready: Ready): object {
  if (typeof ready === "object") return ready;
  if (typeof ready === "number") return { port: ready };
  if (/^https?:\/\//.test(ready)) return { url: ready };
  return ready.startsWith("/") && !ready.includes(" ") ? { file: ready } : { command: ready };
}
