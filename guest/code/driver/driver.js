// Runs pieces of JavaScript that come on descriptor 3, one JSON string in each
// line, one after the other in one context. What they display and how they end
// goes to descriptor 4, one JSON object in each line; after each piece a mark
// goes to both outputs. Used where there is no Jupyter kernel for JavaScript.
"use strict";
const fs = require("node:fs");
const { PassThrough } = require("node:stream");
const repl = require("node:repl");
const util = require("node:util");
const readline = require("node:readline");
const vm = require("node:vm");

const mark = process.argv[process.argv.length - 1];
process.argv = [process.argv[0], ""];
const { stdout, stderr } = process;

function send(message) {
  let bytes = Buffer.from(JSON.stringify(message) + "\n");
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(fs.writeSync(4, bytes));
    } catch (e) {
      if (e.code !== "EAGAIN") throw e;
    }
  }
}

function bundle(value) {
  const custom = value?.[Symbol.for("Jupyter.display")];
  if (typeof custom === "function") return custom.call(value);
  const data = { "text/plain": util.inspect(value, { depth: 6, maxArrayLength: 1000 }) };
  if (typeof value === "object" && value !== null && !util.types.isProxy(value)) {
    const prototype = Object.getPrototypeOf(value);
    if (prototype === null || prototype === Object.prototype || Array.isArray(value)) {
      try {
        const json = JSON.stringify(value);
        if (json !== undefined && json.length < 1 << 20) data["application/json"] = json;
      } catch {} // it has cycles or big integers
    }
  }
  return data;
}

const display = (value) => send({ data: bundle(value) });

const server = repl.start({
  prompt: "", input: new PassThrough(), output: new PassThrough(),
  terminal: false, useGlobal: true, breakEvalOnSigint: true,
});
server.removeAllListeners("exit");
Object.defineProperty(globalThis, "display", { value: display, writable: true, configurable: true });

// What is thrown by code itself reaches us, by the version of Node.js, through
// the callback, the REPL's domain or as uncaught. What is thrown later, by code
// that has ended, is only shown.
let stop;
const late = (e) => stderr.write("Uncaught " + util.inspect(e) + "\n");
const thrown = (e) => (stop ? stop(e) : late(e));
server._domain?.removeAllListeners("error").on("error", thrown);
for (const [name, handler] of [["uncaughtException", thrown], ["unhandledRejection", late]]) {
  process.removeAllListeners(name);
  process.on(name, handler);
}

// Only modules have import statements. Each is said as import() to a variable, at
// the line that the parser objects to, so that what looks like one in a text stays.
function withoutImports(code) {
  for (;;) {
    let line;
    try {
      new vm.Script("(async () => {" + code + "\n})", { filename: "cell" });
      return code;
    } catch (e) {
      if (!String(e.message).startsWith("Cannot use import statement")) return code;
      line = Number(/^cell:(\d+)/.exec(e.stack)?.[1]);
    }
    const start = code.split("\n", line - 1).join("\n").length + (line > 1);
    const said = code.slice(start).replace(
      /(^|;)([ \t]*)import\b\s*(?:([\w$*{}\s,]+?)\s*\bfrom\s*)?("[^"\n]*"|'[^'\n]*')(?:\s*with\s*(\{[^}]*\}))?[ \t]*(?:;|$)/m, imported);
    if (said === code.slice(start)) return code;
    code = code.slice(0, start) + said;
  }
}

function imported(_, before, space, names = "", from, attributes) {
  const module = `await import(${from}${attributes ? `, { with: ${attributes} }` : ""})`;
  const parts = [];
  const [, first, rest] = /^\s*([\w$]*)\s*,?\s*([^]*)$/.exec(names);
  if (first) parts.push(`{ default: ${first} } = ${module}`);
  const all = /^\*\s*as\s+([\w$]+)/.exec(rest);
  if (all) parts.push(`${all[1]} = ${module}`);
  else if (rest.trim()) parts.push(`${rest.trim().replace(/\s+as\s+/g, ": ")} = ${module}`);
  return before + space + (parts.length ? "var " + parts.join(", ") : "void " + module) + ";";
}

function evaluate(code) {
  return new Promise((resolve, reject) => {
    stop = reject;
    send({ begin: true });
    server.eval(withoutImports(code) + "\n", server.context, "cell", (error, value) => (error ? reject(error) : resolve({ value })));
  });
}

function failure(error) {
  if (error instanceof repl.Recoverable) error = error.err;
  if (error?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") {
    return { name: "KeyboardInterrupt", value: "the code was interrupted", traceback: "" };
  }
  if (!util.types.isNativeError(error)) {
    return { name: "Error", value: util.inspect(error), traceback: "Uncaught " + util.inspect(error) };
  }
  const stack = String(error.stack ?? "").split("\n").filter((line) => !/node:|driver\.js|at new Promise \(<anonymous>\)/.test(line));
  return { name: error.name, value: String(error.message), traceback: stack.join("\n") };
}

const flush = (stream) => new Promise((resolve) => stream.write(mark, resolve));

let count = 0;
async function run(request) {
  if (request.count) count++;
  let error = null;
  try {
    const { value } = await evaluate(request.code);
    if (value !== undefined) send({ data: bundle(value), value: true });
  } catch (e) {
    error = failure(e);
  }
  stop = undefined;
  await Promise.all([flush(stdout), flush(stderr)]);
  send({ end: true, error, count });
}

// Code that waits is interrupted by a request. Code that does not is
// interrupted by SIGINT, for which only the REPL may listen, and only while it
// runs code: at any other time the signal is deadly. So each piece of code says
// that it begins.
let last = Promise.resolve();
const requests = readline.createInterface({ input: fs.createReadStream(null, { fd: 3 }) });
requests.on("line", (line) => {
  const request = JSON.parse(line);
  if (request.interrupt) {
    stop?.(Object.assign(new Error("the code was interrupted"), { name: "KeyboardInterrupt" }));
  } else {
    last = last.then(() => run(request));
  }
});
requests.on("close", () => process.exit(0));
