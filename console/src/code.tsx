/** Cells of code, which print as they run. HTML that they make is shut in a frame of an opaque origin, without scripts. */
import type { CodeOutput, CodeResult, Language, Sandbox } from "bothy";
import { useRef, useState } from "preact/hooks";
import { Button, Empty, Trouble, useTrouble } from "./ui";

interface Cell { code: string; printed: string; results: CodeOutput[]; result?: CodeResult }

const kept = 200_000;

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

function CellView({ cell: { code, printed, results, result } }: { cell: Cell }) {
  return (
    <section class="cell">
      <span class="count mono">{result ? `[${result.executionCount || " "}]` : "[*]"}</span>
      <pre tabIndex={0} class="code"><code>{code}</code></pre>
      {printed && <pre tabIndex={0} class="printed">{printed}</pre>}
      {results.map((o, n) => <Output key={n} output={o} />)}
      {result?.error && <pre tabIndex={0} class="trouble">{result.error.traceback || `${result.error.name}: ${result.error.value}`}</pre>}
      {result ? <small>{result.durationMs} ms{result.hint && ` · ${result.hint}`}</small> : <small role="status">running…</small>}
    </section>
  );
}

export function Code({ sandbox }: { sandbox: Sandbox }) {
  const [cells, setCells] = useState<Cell[]>([]);
  const [code, setCode] = useState("");
  const [language, setLanguage] = useState<Language>("python");
  const [trouble, attempt] = useTrouble();
  const field = useRef<HTMLTextAreaElement>(null);
  const run = () => attempt(async () => {
    if (!code.trim()) return;
    let at = -1;
    setCells((old) => ((at = old.length), [...old, { code, printed: "", results: [] }]));
    setCode("");
    field.current?.focus();
    const change = (of: (c: Cell) => Partial<Cell>) => setCells((old) => old.map((c, i) => (i === at ? { ...c, ...of(c) } : c)));
    const print = (text: string) => change((c) => ({ printed: (c.printed + text).slice(-kept) }));
    try {
      const result = await sandbox.runCode(code, { language, onStdout: print, onStderr: print, onResult: (o) => change((c) => ({ results: [...c.results, o] })) });
      change(() => ({ result }));
    } catch (error) {
      setCells((old) => old.filter((_, i) => i !== at));
      setCode((now) => now || code); // nothing is lost
      throw error;
    }
  });
  return (
    <>
      {cells.length === 0 && <Empty><p>Variables persist from one cell to the next. Plots, tables and images are shown below their cell.</p></Empty>}
      {cells.map((cell, i) => <CellView key={i} cell={cell} />)}
      <Trouble text={trouble} />
      <textarea ref={field} class="editor small" style={{ marginTop: ".8rem" }} aria-label="Code" spellcheck={false} value={code} onInput={(e) => setCode(e.currentTarget.value)}
        onKeyDown={(e) => e.key === "Enter" && (e.ctrlKey || e.metaKey || e.shiftKey) && (e.preventDefault(), void run())} />
      <div class="bar" style={{ marginTop: ".5rem" }}>
        <Button kind="main" work={run}>Run</Button>
        <label>Language <select value={language} onChange={(e) => setLanguage(e.currentTarget.value as Language)}><option>python</option><option>javascript</option><option>bash</option></select></label>
        <small>Shift+Enter or Ctrl+Enter runs it.</small>
      </div>
    </>
  );
}
