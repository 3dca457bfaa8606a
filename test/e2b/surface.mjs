// Notes which public functions of E2B's SDKs for JavaScript are called.
import * as sdk from "@e2b/code-interpreter";

// Absent are those that no test calls, each with the reason.
const noCalls = "calls no server";
const volumes = "volumes do not exist here, so that there is none whose methods could be called";
const building = "what puts a recipe together calls no server, and tags do not exist here";
export const absent = {
  ConnectionConfig: noCalls,
  LogEntry: noCalls,
  ReadyCmd: noCalls,
  "Sandbox#handleRequestError": "turns errors of the package into others, and is called by no program",
  "Secret.fill": noCalls,
  "Secret.iamToken": noCalls,
  ...Object.fromEntries(["getRemoteUrl", "resolveRemoteName", "withRemoteCredentials", "hasUpstream"].map((n) => ["Git#" + n, "private in the types"])),
  "Volume#list": volumes,
  "Volume#makeDir": volumes,
  "Volume#getInfo": volumes,
  "Volume#exists": volumes,
  "Volume#updateMetadata": volumes,
  "Volume#readFile": volumes,
  "Volume#writeFile": volumes,
  "Volume#remove": volumes,
  "TemplateBase#": building,
};

const known = new Map(); // name: called
const seen = new Set();

function wrap(owner, label) {
  for (const [name, d] of Object.entries(Object.getOwnPropertyDescriptors(owner))) {
    if (name === "constructor" || name.startsWith("_") || typeof d.value !== "function" || !d.configurable) continue;
    if (/^class\b/.test(Function.prototype.toString.call(d.value))) continue;
    const full = label + name;
    known.set(full, false);
    Object.defineProperty(owner, name, {
      ...d,
      value(...args) {
        known.set(full, true);
        return d.value.apply(this, args);
      },
    });
  }
}

// Watch notes the calls of a class, and of those that it comes from.
export function watch(cls) {
  for (let c = cls; typeof c === "function" && c.prototype && !seen.has(c) && c !== Function.prototype; c = Object.getPrototypeOf(c)) {
    if (c === Object || c.prototype instanceof Error) return;
    seen.add(c);
    wrap(c, c.name.replace(/^_+/, "") + ".");
    wrap(c.prototype, c.name.replace(/^_+/, "") + "#");
  }
}

// Kinds are the classes that objects are of, by what a client calls them.
export function watchObjects(objects) {
  for (const o of Object.values(objects)) watch(o.constructor);
}

for (const c of Object.values(sdk)) if (typeof c === "function") watch(c);

// Result returns the public functions that nothing called and nobody excused, and the
// excuses that excuse nothing.
export function result() {
  const left = new Set(Object.keys(absent));
  const missing = [];
  for (const [name, called] of known) {
    if (called) continue;
    const owner = name.split(/[.#]/)[0];
    const why = [name, owner, owner + "#"].find((n) => n in absent);
    if (why) left.delete(why);
    else missing.push(name);
  }
  return { missing, useless: [...left] };
}
