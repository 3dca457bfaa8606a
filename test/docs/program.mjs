// Makes one program of the TypeScript and JavaScript blocks of a page. Each block
// is in the scope of those before it, as a reader sees it, and may use their names
// again. Reads a JSON array of sources, and prints the program. Between blocks the
// program waits for a line on descriptor 3, and answers "ok" on descriptor 4.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const ts = createRequire(join(process.argv[2], "package.json"))("typescript");
const blocks = JSON.parse(readFileSync(0, "utf8"));

const imports = new Map(); // module to the names that some block imports from it
const bodies = blocks.map((source) =>
  source.replace(/^import\s+(?:\{([^}]*)\}|\*\s+as\s+(\w+)|(\w+))\s+from\s+["']([^"']+)["'];?$/gm, (_, names, all, one, module) => {
    const known = imports.get(module) ?? new Set();
    for (const name of names?.split(",") ?? []) if (name.trim()) known.add(name.trim());
    if (all) known.add(`* as ${all}`);
    if (one) known.add(`default as ${one}`);
    imports.set(module, known);
    return "";
  }),
);

let program = "";
for (const [module, names] of imports) {
  const list = [...names];
  for (const all of list.filter((name) => name.startsWith("*"))) program += `import ${all} from "${module}";\n`;
  const named = list.filter((name) => !name.startsWith("*"));
  if (named.length) program += `import { ${named.join(", ")} } from "${module}";\n`;
}
program += `
import { writeSync as __write } from "node:fs";
import { Socket as __Pipe } from "node:net";
import { createInterface as __lines } from "node:readline";
const __told = __lines({ input: new __Pipe({ fd: 3 }) })[Symbol.asyncIterator]();
`;
for (const body of bodies) program += `{\nawait __told.next();\n${body}\n__write(4, "ok\\n");\n`;
program += "await __told.next();\n" + "}\n".repeat(bodies.length) + "process.exit(0);\n";

const made = ts.transpileModule(program, {
  reportDiagnostics: true,
  compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true },
});
for (const { messageText } of made.diagnostics) console.error(ts.flattenDiagnosticMessageText(messageText, "\n"));
if (made.diagnostics.length) process.exit(1);
process.stdout.write(made.outputText);
