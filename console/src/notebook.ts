/** The cells of a sandbox: they run on while another page is looked at, and are there again after a reload. */
import type { CodeOutput, CodeResult, Language, Sandbox } from "bothy";
import { draft, keepDraft } from "./drafts";
import { hasEnded, textOf } from "./server";

export interface Cell {
  code: string;
  language: Language;
  printed: string;
  results: CodeOutput[];
  /** What came of it; missing while it runs. */
  result?: Pick<CodeResult, "executionCount" | "durationMs" | "error" | "hint">;
  /** It did not run to its end, because it was stopped or its page was closed. */
  stopped?: boolean;
  /** Why it could not be run, or is not known to have ended. */
  failed?: string;
}

const printedMost = 200_000;

const books = new Map<string, Notebook>();
addEventListener("pagehide", () => books.forEach((book) => book.keep())); // a reload does not wait

/** The notebook of a sandbox, one for as long as the pages are open. */
export function notebookOf(sandbox: Sandbox): Notebook {
  const known = books.get(sandbox.id);
  if (known) return known;
  const made = new Notebook(sandbox);
  books.set(sandbox.id, made);
  return made;
}

/** Forgets all notebooks. */
export function forgetNotebooks(): void {
  books.clear();
}

export class Notebook {
  cells: Cell[];
  code: string;
  language: Language;
  #sandbox: Sandbox;
  #watchers = new Set<() => void>();
  #running = new Map<Cell, AbortController>();

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
    const kept = draft<Pick<Notebook, "cells" | "code" | "language">>(`cells ${sandbox.id}`);
    this.cells = (kept?.cells ?? []).map((c) => (c.result ? c : { ...c, stopped: true }));
    this.code = kept?.code ?? "";
    this.language = kept?.language ?? "python";
  }

  /** Calls f whenever something changes, until the function that is returned is called. */
  watch(f: () => void): () => void {
    this.#watchers.add(f);
    return () => void this.#watchers.delete(f);
  }

  runs(cell: Cell): boolean {
    return this.#running.has(cell);
  }

  write(change: Partial<Pick<Notebook, "code" | "language">>): void {
    Object.assign(this, change);
    this.#changed();
  }

  /** Runs code as a new cell, or an old one again. A cell that could not be run says why. */
  async run(code: string, language: Language, again?: Cell): Promise<void> {
    const cell: Cell = again ?? { code, language, printed: "", results: [] };
    Object.assign(cell, { printed: "", results: [], result: undefined, stopped: false, failed: undefined });
    if (!again) this.cells.push(cell);
    const stop = new AbortController();
    this.#running.set(cell, stop);
    this.#changed();
    const print = (text: string) => this.#set(cell, { printed: (cell.printed + text).slice(-printedMost) });
    try {
      const { executionCount, durationMs, error, hint } = await this.#sandbox.runCode(code, { language, signal: stop.signal, onStdout: print, onStderr: print, onResult: (o) => this.#set(cell, { results: [...cell.results, o] }) });
      this.#set(cell, { result: { executionCount, durationMs, error, hint } });
    } catch (error) {
      if (stop.signal.aborted) return this.#set(cell, { stopped: true });
      this.#set(cell, { stopped: true, failed: textOf(error) });
      if (hasEnded(error)) throw error;
    } finally {
      this.#running.delete(cell);
      this.#changed();
    }
  }

  /** Interrupts a cell that runs. */
  stop(cell: Cell): void {
    this.#running.get(cell)?.abort();
  }

  remove(cell: Cell): void {
    this.cells = this.cells.filter((c) => c !== cell);
    this.#changed();
  }

  /** The whole as Jupyter writes it. */
  ipynb(): string {
    const cells = this.cells.map((c) => ({
      cell_type: "code", metadata: {}, execution_count: c.result?.executionCount || null, source: c.code.split(/(?<=\n)/),
      outputs: [
        ...(c.printed ? [{ output_type: "stream", name: "stdout", text: c.printed.split(/(?<=\n)/) }] : []),
        ...c.results.map((data) => ({ output_type: "display_data", metadata: {}, data })),
        ...(c.result?.error ? [{ output_type: "error", ename: c.result.error.name, evalue: c.result.error.value, traceback: c.result.error.traceback.split("\n") }] : []),
      ],
    }));
    return JSON.stringify({ nbformat: 4, nbformat_minor: 4, metadata: { language_info: { name: this.cells[0]?.language ?? this.language } }, cells }, null, 1);
  }

  #set(cell: Cell, change: Partial<Cell>): void {
    Object.assign(cell, change);
    this.#changed();
  }

  #changed(): void {
    for (const f of this.#watchers) f();
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.keep(), 300); // what is printed comes in many pieces
  }

  #timer = 0;

  /** Keeps it for a reload: without outputs where they are too large. */
  keep(): void {
    clearTimeout(this.#timer);
    const { cells, code, language } = this;
    const empty = cells.length === 0 && code === "";
    const name = `cells ${this.#sandbox.id}`;
    if (!keepDraft(name, empty ? undefined : { cells, code, language })) keepDraft(name, { cells: cells.map((c) => ({ ...c, printed: "", results: [] })), code, language });
  }
}
