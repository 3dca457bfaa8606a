/** Cells of code. HTML that they make is shut in a frame of an opaque origin, without scripts. */
import type { CodeOutput, CodeResult, Language, Sandbox } from "bothy";
import { useState } from "preact/hooks";
import { Button, Trouble, useTrouble } from "./ui";

interface Cell { code: string; result: CodeResult }

function Output({ output }: { output: CodeOutput }) {
  const image = ["png", "jpeg"].find((k) => output[k] ?? output[`image/${k}`]);
  if (image) return <img alt={output.text ?? "a result"} src={`data:image/${image};base64,${output[image] ?? output[`image/${image}`]}`} />;
  const html = output.html ?? output["text/html"];
  if (html) return <iframe title="A result in HTML" sandbox="" srcdoc={html} />;
  const text = output.text ?? output["text/plain"];
  return <pre tabIndex={0}>{text ?? JSON.stringify(output, null, 2)}</pre>;
}

export function Code({ sandbox }: { sandbox: Sandbox }) {
  const [cells, setCells] = useState<Cell[]>([]);
  const [code, setCode] = useState("");
  const [language, setLanguage] = useState<Language>("python");
  const [trouble, attempt] = useTrouble();
  const run = () => attempt(async () => {
    const result = await sandbox.runCode(code, { language });
    setCells((old) => [...old, { code, result }]);
  });
  return (
    <>
      {cells.map(({ code, result }, i) => (
        <section key={i} class="cell">
          <pre tabIndex={0}><code>{code}</code></pre>
          {(result.stdout || result.stderr) && <pre tabIndex={0} class="printed">{result.stdout}{result.stderr}</pre>}
          {result.results.map((o, n) => <Output key={n} output={o} />)}
          {result.error && <pre tabIndex={0} class="trouble">{result.error.traceback || `${result.error.name}: ${result.error.value}`}</pre>}
        </section>
      ))}
      <Trouble text={trouble} />
      <textarea class="editor small" aria-label="Code" spellcheck={false} value={code} onInput={(e) => setCode(e.currentTarget.value)}
        onKeyDown={(e) => e.key === "Enter" && e.ctrlKey && void run()} />
      <div class="bar">
        <label>Language <select value={language} onChange={(e) => setLanguage(e.currentTarget.value as Language)}><option>python</option><option>javascript</option><option>bash</option></select></label>
        <Button work={run}>Run</Button>
      </div>
    </>
  );
}
