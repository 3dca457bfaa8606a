/** An editor with colours for syntax, fetched when a file is opened. */
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, indentOnInput, type LanguageSupport, StreamLanguage, type StreamParser, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";

const simple = async (parser: Promise<StreamParser<unknown>>) => StreamLanguage.define(await parser);
const script = (options?: { jsx?: boolean; typescript?: boolean }) => import("@codemirror/lang-javascript").then((m) => m.javascript(options));

/** The languages, by the ends of names. Each is fetched when a file first needs it. */
const languages: [RegExp, () => Promise<LanguageSupport | StreamLanguage<unknown>>][] = [
  [/\.(py|pyi)$/, () => import("@codemirror/lang-python").then((m) => m.python())],
  [/\.[cm]?jsx?$/, () => script({ jsx: true })],
  [/\.[cm]?ts$/, () => script({ typescript: true })],
  [/\.tsx$/, () => script({ jsx: true, typescript: true })],
  [/\.(json|ipynb)$/, () => import("@codemirror/lang-json").then((m) => m.json())],
  [/\.(html?|svg|xml)$/, () => import("@codemirror/lang-html").then((m) => m.html())],
  [/\.css$/, () => import("@codemirror/lang-css").then((m) => m.css())],
  [/\.(md|markdown)$/, () => import("@codemirror/lang-markdown").then((m) => m.markdown())],
  [/\.ya?ml$/, () => import("@codemirror/lang-yaml").then((m) => m.yaml())],
  [/\.go$/, () => import("@codemirror/lang-go").then((m) => m.go())],
  [/\.rs$/, () => import("@codemirror/lang-rust").then((m) => m.rust())],
  [/\.([ch]|cc|cpp|hpp)$/, () => import("@codemirror/lang-cpp").then((m) => m.cpp())],
  [/\.(sh|bash)$|\/\.(bashrc|profile)$/, () => simple(import("@codemirror/legacy-modes/mode/shell").then((m) => m.shell))],
  [/\.toml$/, () => simple(import("@codemirror/legacy-modes/mode/toml").then((m) => m.toml))],
  [/(^|\/|\.)Dockerfile$/, () => simple(import("@codemirror/legacy-modes/mode/dockerfile").then((m) => m.dockerFile))],
  [/\.rb$/, () => simple(import("@codemirror/legacy-modes/mode/ruby").then((m) => m.ruby))],
];

/** The tab key leaves the editor, as it leaves every field: who uses no mouse is not caught in it. */
export function Editor({ path, text, write, change, keep }: { path: string; text: string; write: boolean; change: (text: string) => void; keep: () => void }) {
  const at = useRef<HTMLDivElement>(null);
  const changed = useRef(change);
  changed.current = change;
  const kept = useRef(keep);
  kept.current = keep;
  useEffect(() => {
    const language = new Compartment();
    const view = new EditorView({
      parent: at.current!,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(), highlightSpecialChars(), history(), drawSelection(), indentOnInput(), bracketMatching(), EditorView.lineWrapping,
          syntaxHighlighting(classHighlighter), language.of([]), keymap.of([{ key: "Mod-s", preventDefault: true, run: () => (write && kept.current(), true) }, ...defaultKeymap, ...historyKeymap]), EditorState.readOnly.of(!write),
          EditorState.lineSeparator.of(text.includes("\r\n") ? "\r\n" : "\n"), EditorView.contentAttributes.of({ "aria-label": path, spellcheck: "false" }),
          EditorView.updateListener.of((u) => u.docChanged && changed.current(u.state.sliceDoc())),
        ],
      }),
    });
    let gone = false;
    void languages.find(([ends]) => ends.test(path))?.[1]().then((l) => gone || view.dispatch({ effects: language.reconfigure(l) }), () => undefined);
    view.focus();
    return () => ((gone = true), view.destroy());
  }, [path]);
  return <div class="editor" ref={at} />;
}
