"use strict";
const el = (tag, attrs, ...inside) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
  e.append(...inside.filter(x => x !== null && x !== undefined));
  return e;
};
// text turns `code` in a description into code.
const text = s => (s || "").split("`").map((part, i) => i % 2 ? el("code", {}, part) : part);
let doc;
const resolve = s => s && s.$ref ? s.$ref.slice(2).split("/").reduce((o, k) => o[k], doc) : s;
const refName = s => s.$ref ? s.$ref.split("/").pop() : "";
function typeName(s) {
  if (!s) return "";
  if (s.$ref) return refName(s);
  if (s.oneOf) return s.oneOf.map(typeName).join(" | ");
  if (s.enum && s.enum.length <= 8) return s.enum.join(" | ");
  if (s.type === "array") return typeName(s.items) + "[]";
  if (s.type === "object" && s.additionalProperties) return "{ key: " + typeName(s.additionalProperties) + " }";
  const t = Array.isArray(s.type) ? s.type.join(" | ") : s.type || "any";
  return s.format && s.format !== "double" && s.format !== "int64" && s.format !== "int32" ? t + " (" + s.format + ")" : t;
}
function notes(s, required) {
  const out = [];
  if (required) out.push("required");
  if (s.default !== undefined) out.push("default " + JSON.stringify(s.default));
  if (s.minimum !== undefined && s.maximum !== undefined) out.push(s.minimum + " to " + s.maximum);
  else if (s.minimum !== undefined) out.push("at least " + s.minimum);
  if (s.maxLength !== undefined) out.push("at most " + s.maxLength + " characters");
  return out.length ? " (" + out.join(", ") + ")" : "";
}
function fields(schema, depth) {
  schema = resolve(schema);
  if (!schema) return null;
  if (schema.type === "array") return fields(schema.items, depth);
  if (!schema.properties) return null;
  const required = schema.required || [];
  const table = el("table");
  for (const [name, p] of Object.entries(schema.properties)) {
    const more = depth < 2 && (p.$ref || (p.items && p.items.$ref)) ? fields(p, depth + 1) : null;
    table.append(el("tr", {}, el("td", {}, el("code", {}, name)), el("td", {}, typeName(p)),
      el("td", {}, ...text(p.description || (resolve(p) || {}).description), notes(p, required.includes(name)), more)));
  }
  return table;
}
function parameters(op) {
  const all = (op.parameters || []).map(resolve);
  if (!all.length) return [];
  const table = el("table");
  for (const p of all) table.append(el("tr", {}, el("td", {}, el("code", {}, p.name)), el("td", {}, p.in + ", " + typeName(p.schema)),
    el("td", {}, ...text(p.description), notes(p.schema || {}, p.required && p.in !== "path"))));
  return [el("h4", {}, "Parameters"), table];
}
function contents(title, content) {
  const out = [];
  for (const [type, m] of Object.entries(content || {})) {
    out.push(el("h4", {}, title + ": ", el("code", {}, type), m.schema && refName(m.schema) ? " of " + refName(m.schema) : ""));
    const f = fields(m.schema, 0);
    if (f) out.push(f);
  }
  return out;
}
let language = "curl", login;
/** Shows the examples of an operation in the language that was chosen last. */
function examples(op) {
  const list = op["x-codeSamples"] || [];
  if (!list.length) return [];
  const tabs = el("div", { class: "tabs", role: "group", "aria-label": "Language" });
  const box = el("div", { class: "examples" }, el("h4", {}, "Example"), tabs);
  for (const s of list) {
    const choose = el("button", { type: "button", "data-language": s.label }, s.label);
    choose.addEventListener("click", () => { language = s.label; chosen(); });
    tabs.append(choose);
    box.append(el("pre", { "data-language": s.label, tabindex: "0" }, s.source));
  }
  const copy = el("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    const source = list.find(s => s.label === language).source;
    try { await navigator.clipboard.writeText(source); copy.textContent = "Copied"; } catch { copy.textContent = "Not allowed to copy"; }
  });
  copy.className = "copy";
  tabs.append(copy);
  return [box];
}
function chosen() {
  for (const b of document.querySelectorAll("button[data-language]")) b.setAttribute("aria-pressed", String(b.dataset.language === language));
  for (const p of document.querySelectorAll("pre[data-language]")) p.hidden = p.dataset.language !== language;
  for (const c of document.querySelectorAll("button.copy")) c.textContent = "Copy";
}

/** What a request takes as its body: text to edit, a file, or nothing. */
function bodyField(op) {
  const content = op.requestBody ? op.requestBody.content : {};
  const json = content["application/json"];
  if (json) {
    const area = el("textarea", { rows: "4", spellcheck: "false" });
    area.value = json.example === undefined ? "{}" : JSON.stringify(json.example, null, 2);
    return { label: "Body", field: area, type: "application/json", read: () => area.value };
  }
  const type = Object.keys(content)[0] || (op.operationId === "import-snapshot" ? "application/octet-stream" : "");
  if (!type) return null;
  const file = el("input", { type: "file" });
  return { label: "Body, from a file", field: file, type, read: () => file.files[0] };
}

/** A form that sends the request with the login of the console. */
function trial(method, path, op) {
  const out = el("div", { class: "trial" }, el("h4", {}, "Try it"));
  if (op.responses["101"]) {
    out.append(el("p", {}, "This one becomes a connection. Use an SDK, or the terminal of the console."));
    return out;
  }
  if (!login) {
    out.append(el("p", {}, "Log in at ", el("a", { href: "/console/" }, "the console"), ", and load this page again, to send requests from here."));
    return out;
  }
  const form = el("form"), inputs = [], body = bodyField(op);
  const add = (label, field) => form.append(el("label", {}, el("span", {}, label), field));
  for (const p of (op.parameters || []).map(resolve)) {
    if (p.in === "header") continue;
    const field = el("input", { name: p.name, autocomplete: "off" });
    if (p.required) field.required = true;
    inputs.push([p, field]);
    add(p.name, field);
  }
  if (body) add(body.label, body.field);
  const send = el("button", { type: "submit", class: method === "delete" ? "danger" : "" }, "Send " + method.toUpperCase());
  const stop = el("button", { type: "button", hidden: "" }, "Stop");
  const status = el("p", { role: "status" }), answer = el("pre", { tabindex: "0", hidden: "", "aria-label": "Answer" });
  form.append(el("div", {}, send, stop));
  out.append(el("p", {}, "As " + (login.token_name || "your key") + ", in the project " + login.project + ". It really happens."), form, status, answer);
  form.addEventListener("submit", async e => {
    e.preventDefault();
    const ended = new AbortController();
    stop.onclick = () => ended.abort();
    send.disabled = true;
    stop.hidden = false;
    answer.hidden = true;
    answer.textContent = "";
    status.textContent = "Waiting…";
    try {
      await request(method, path, inputs, body, ended.signal, status, answer);
    } catch (error) {
      status.textContent = ended.signal.aborted ? "Stopped." : "The request failed: " + error.message;
    } finally {
      send.disabled = false;
      stop.hidden = true;
    }
  });
  return out;
}
const shownBytes = 1 << 20;
async function request(method, path, inputs, body, signal, status, answer) {
  const query = new URLSearchParams();
  for (const [p, field] of inputs) {
    if (p.in === "path") path = path.replace("{" + p.name + "}", encodeURIComponent(field.value));
    else if (field.value) query.append(p.name, field.value);
  }
  const headers = { "X-Bothy-Console": "1" }, content = body && body.read();
  if (body) headers["Content-Type"] = body.type;
  const began = performance.now();
  const r = await fetch(path + (query.size ? "?" + query : ""), { method: method.toUpperCase(), headers, body: content || undefined, signal, redirect: "error" });
  status.textContent = r.status + " " + r.statusText + ", after " + Math.round(performance.now() - began) + " ms";
  const type = r.headers.get("Content-Type") || "";
  if (!r.body || r.status === 204) return;
  answer.hidden = false;
  const json = /json/.test(type), binary = !json && !/^text\//.test(type);
  const reader = r.body.getReader(), decoder = new TextDecoder();
  let size = 0, whole = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (binary) { answer.textContent = size + " bytes of " + type; continue; }
    const piece = decoder.decode(value, { stream: true });
    if (json) whole += piece; else answer.append(piece);
    if (size > shownBytes) { reader.cancel(); answer.append(whole, "\n… more than is shown here"); return; }
  }
  if (json) try { answer.textContent = JSON.stringify(JSON.parse(whole), null, 2); } catch { answer.textContent = whole; }
}
const wordsOf = (path, op) => [op.operationId, path, op.summary].join(" ").toLowerCase();
function operation(method, path, op) {
  const inside = el("div", { class: "inside" });
  const d = el("details", { id: op.operationId, "data-words": wordsOf(path, op) }, el("summary", {},
    el("code", { class: "method" }, method.toUpperCase()), el("code", {}, path), el("span", {}, op.summary)), inside);
  d.addEventListener("toggle", () => {
    if (!d.open || inside.firstChild) return;
    inside.append(el("p", {}, ...text(op.description)), el("p", {}, "Scope: ", el("code", {}, op["x-scope"])), ...parameters(op));
    inside.append(...examples(op));
    if (op.requestBody) inside.append(...contents("Body", op.requestBody.content));
    for (const [status, r] of Object.entries(op.responses)) {
      if (status === "default") continue;
      inside.append(...(r.content ? contents("Answer " + status, r.content) : [el("h4", {}, "Answer " + status)]));
    }
    inside.append(trial(method, path, op));
    chosen();
  });
  return d;
}
function show() {
  const main = document.getElementById("main"), nav = document.getElementById("nav");
  document.getElementById("status").remove();
  main.append(el("p", {}, ...text(doc.info.description)), el("p", {}, "The whole as ", el("a", { href: "/openapi.json" }, "JSON"), " or ", el("a", { href: "/openapi.yaml" }, "YAML"), "."));
  const find = el("input", { type: "search", "aria-label": "Find an operation", placeholder: "Find an operation" });
  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/);
    for (const e of document.querySelectorAll("[data-words]")) e.hidden = !words.every(w => e.dataset.words.includes(w));
  });
  nav.append(find);
  for (const tag of doc.tags) {
    main.append(el("h2", { id: tag.name }, tag.name), el("p", {}, ...text(tag.description)));
    nav.append(el("b", {}, tag.name));
    for (const [path, item] of Object.entries(doc.paths)) for (const [method, op] of Object.entries(item)) {
      if (!op.tags || !op.tags.includes(tag.name)) continue;
      main.append(operation(method, path, op));
      nav.append(el("a", { href: "#" + op.operationId, "data-words": wordsOf(path, op) }, op.summary));
    }
  }
  const problem = doc.components.schemas.Problem, table = el("table");
  for (const [code, status] of Object.entries(problem.properties.code["x-status"]).sort((a, b) => a[1] - b[1]))
    table.append(el("tr", {}, el("td", {}, el("code", {}, code)), el("td", {}, String(status))));
  nav.append(el("b", {}, "Failures"), el("a", { href: "#failures" }, "The codes"));
  main.append(el("h2", { id: "failures" }, "Failures"), el("p", {}, ...text("Every failure is `application/problem+json`:")),
    el("pre", {}, '{"status": 409, "code": "sandbox_paused", "detail": "…", "hint": "…"}'), table);
  const open = () => { const d = document.getElementById(location.hash.slice(1)); if (d) { if (d.tagName === "DETAILS") d.open = true; d.scrollIntoView(); } };
  addEventListener("hashchange", open);
  open();
}
/** Says who is logged in at the console, if anybody is. */
async function whoAmI() {
  const r = await fetch("/console/session", { headers: { "X-Bothy-Console": "1" } });
  return r.ok && r.status !== 204 ? r.json() : null;
}
const whole = fetch("/openapi.json").then(r => r.json());
whoAmI().catch(() => null).then(async who => { login = who; doc = await whole; show(); })
  .catch(e => { document.getElementById("status").textContent = "The document could not be loaded: " + e; });
