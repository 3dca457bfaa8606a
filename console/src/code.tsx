/** Cells of code, which print as they run. HTML that they make is shut in a frame of an opaque origin, without scripts. */
import type { CodeOutput, Language, Sandbox } from "bothy";
import { useEffect, useReducer, useRef } from "preact/hooks";
import { type Cell, notebookOf } from "./notebook";
import { Button, Empty, save, Trouble, useTrouble } from "./ui";

/** How high a page may be: it cannot be asked, for no script runs in it. The visitor can pull it longer. */
const heightOf = (html: string) => Math.min(28, 3.5 + 1.9 * (html.match(/<(tr|p|br|li|h\d)\b/gi)?.length ?? 0));

function Output({ output }: { output: CodeOutput }) {
  const image = ["png", "jpeg"].find((k) => output[k] ?? output[`image/${k}`]);
  if (image) return <img alt={output.text ?? output["text/plain"] ?? "a result"} src={`data:image/${image};base64,${output[image] ?? output[`image/${image}`]}`} />;
  const html = output.html ?? output["text/html"];
  if (html) return <iframe title="A result in HTML" sandbox="" srcdoc={html} style={{ height: `${heightOf(html)}rem` }} />;
  const text = output.text ?? output["text/plain"];
  return <pre tabIndex={0}>{text ?? JSON.stringify(output, null, 2)}</pre>;
}

interface CellProps { cell: Cell; runs: boolean; again: () => Promise<void>; stop: () => void; remove: () => void }

function CellView({ cell: { code, printed, results, result, stopped, failed }, runs, again, stop, remove }: CellProps) {
  return (
    <section class="cell">
      <span class="count mono">{runs ? "[*]" : `[${result?.executionCount || " "}]`}</span>
      <pre tabIndex={0} class="code"><code>{code}</code></pre>
      {printed && <pre tabIndex={0} class="printed">{printed}</pre>}
      {results.map((o, n) => <Output key={n} output={o} />)}
      {result?.error && <pre tabIndex={0} class="trouble">{result.error.traceback || `${result.error.name}: ${result.error.value}`}</pre>}
      <Trouble text={failed ?? ""} />
      <div class="acts">
        {runs ? <small role="status">running…</small> : <small>{stopped ? "stopped before its end" : `${result?.durationMs ?? 0} ms${result?.hint ? ` · ${result.hint}` : ""}`}</small>}
        {runs ? <button type="button" class="quiet" onClick={stop}>Stop</button> : <><Button kind="quiet" work={again}>Run again</Button><button type="button" class="quiet danger" onClick={remove}>Remove</button></>}
      </div>
    </section>
  );
}

export function Code({ sandbox }: { sandbox: Sandbox }) {
  const book = notebookOf(sandbox);
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const [trouble, attempt] = useTrouble();
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => book.watch(() => draw(0)), [book]);
  const { code, language } = book;
  const run = () => attempt(async () => {
    if (!code.trim()) return;
    book.write({ code: "" });
    field.current?.focus();
    await book.run(code, language);
  });
  return (
    <>
      {book.cells.length === 0 && <Empty><p>Variables persist from one cell to the next. Plots, tables and images are shown below their cell.</p></Empty>}
      {book.cells.map((cell, i) => <CellView key={i} cell={cell} runs={book.runs(cell)} again={() => attempt(() => book.run(cell.code, cell.language, cell))} stop={() => book.stop(cell)} remove={() => book.remove(cell)} />)}
      <Trouble text={trouble} />
      <textarea ref={field} class="editor small" style={{ marginTop: ".8rem" }} aria-label="Code" spellcheck={false} value={code} onInput={(e) => book.write({ code: e.currentTarget.value })}
        onKeyDown={(e) => e.key === "Enter" && (e.ctrlKey || e.metaKey || e.shiftKey) && (e.preventDefault(), void run())} />
      <div class="bar" style={{ marginTop: ".5rem" }}>
        <Button kind="main" work={run}>Run</Button>
        <label>Language <select value={language} onChange={(e) => book.write({ language: e.currentTarget.value as Language })}><option>python</option><option>javascript</option><option>bash</option></select></label>
        <small>Shift+Enter or Ctrl+Enter runs it.</small>
        {book.cells.length > 0 && <button type="button" onClick={() => save(`${sandbox.info.name ?? sandbox.id}.ipynb`, book.ipynb())}>Download .ipynb</button>}
      </div>
    </>
  );
}
