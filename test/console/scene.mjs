// Pictures for the documentation, of sandboxes that look like a day's work: test/console/run scene FOLDER
import { at, call, endAll, openBrowser, serve, stop, visit } from "./harness.mjs";

const folder = process.argv[2];
const scene = [
  ["data-analyst", "python-3.12", { team: "growth", agent: "analyst" }, "exec python3 -c 'import numpy as n\nwhile 1: n.linalg.svd(n.random.rand(300, 300))'", { cpu: 1, memory_mb: 1024 }],
  ["pr-bot-1284", "python-3.12", { team: "platform", pr: "1284" }, "exec python3 -c 'import time; x = bytearray(150 << 20); time.sleep(900)'", {}],
  ["pr-bot-1291", "python-3.12", { team: "platform", pr: "1291" }, "exec sleep 900", {}],
  ["shop-preview", "python-3.12", { team: "web", branch: "checkout" }, "exec python3 -m http.server 8000", { network: "restricted" }],
  ["rollout-07", "python-3.12-bare", { run: "rl-42", step: "7" }, "exec sleep 900", {}],
  ["rollout-08", "python-3.12-bare", { run: "rl-42", step: "8" }, "exec sleep 900", {}],
  ["support-triage", "python-3.12", { team: "support" }, "exec sleep 900", { network: "restricted" }],
];

await serve("127.0.0.1:0");
const browser = await openBrowser();
try {
  const ids = new Map();
  for (const [name, template, metadata, command, more] of scene) {
    const { id } = await call(at.admin, "POST", "/v1/sandboxes", { template, name, metadata, timeout_seconds: 3600, ...more });
    ids.set(name, id);
    await call(at.admin, "POST", `/v1/sandboxes/${id}/exec`, { command, background: true });
  }
  await call(at.admin, "POST", `/v1/sandboxes/${ids.get("support-triage")}/pause`, {});
  const p = await visit(browser, at.admin);
  const take = (name) => p.screenshot({ path: `${folder}/${name}.png` });
  await p.locator("tr.row", { hasText: "data-analyst" }).getByText(/^\d\.\d\d/).first().waitFor({ timeout: 60_000 }); // once it was measured twice
  await take("sandboxes");
  const shop = ids.get("shop-preview");
  await p.goto(`${at.url}/console/sandboxes/${shop}/terminal`);
  await p.locator(".xterm-helper-textarea").focus();
  const lines = [
    `mkdir src && echo 'def total(cart): return sum(i["price"] for i in cart)' >src/cart.py`,
    `python3 -c 'from src.cart import total; print(total([{"price": 12}, {"price": 30}]))'`, "curl -sI localhost:8000 | head -4",
  ];
  for (const [i, line] of lines.entries()) {
    await p.keyboard.type(`${line}\n`);
    await p.locator(".xterm-rows > div", { hasText: "user@" }).nth(i + 1).waitFor();
  }
  await p.getByRole("button", { name: "Open port 8000" }).waitFor();
  await take("terminal");
  const show = async (page, name, ready) => {
    await p.goto(`${at.url}/console/${page}`);
    await ready().waitFor();
    await take(name);
  };
  const inside = (id, command) => call(at.admin, "POST", `/v1/sandboxes/${id}/exec`, { command });
  await inside(shop, "getent hosts telemetry.example.net; getent hosts github.com; true");
  await show(`sandboxes/${shop}/network`, "network", () => p.getByText("telemetry.example.net").first());
  await show(`sandboxes/${shop}/processes`, "processes", () => p.getByText("http.server").first());
  await show(`sandboxes/${ids.get("data-analyst")}`, "sandbox", () => p.locator("figure", { hasText: "CPU" }).locator("polyline").first());
  // A family: two approaches from one state, of which one is rolled back, and a copy of the better one.
  const origin = ids.get("pr-bot-1291");
  const snapshot = (id, name) => call(at.admin, "POST", `/v1/sandboxes/${id}/snapshots`, { name });
  const fork = async (id, name) => (await call(at.admin, "POST", `/v1/sandboxes/${id}/fork`, { count: 1, name })).items[0].id;
  await inside(origin, "git init -q /workspace/app; echo 1 >/workspace/app/parser.py");
  const green = await snapshot(origin, "tests pass");
  const regex = await fork(origin, "by-regex"), table = await fork(origin, "by-table");
  await inside(regex, "echo 2 >/workspace/app/parser.py");
  await snapshot(regex, "faster");
  await inside(table, "echo 3 >/workspace/app/parser.py; echo t >/workspace/app/table.py");
  await snapshot(table, "all green");
  await fork(table, "review");
  await inside(origin, "rm /workspace/app/parser.py");
  await call(at.admin, "POST", `/v1/sandboxes/${origin}/rollback`, { snapshot_id: green.id });
  await snapshot(origin, "back again");
  await show("snapshots", "snapshots", () => p.locator(".family .dot").nth(4));
  await show("host", "host", () => p.getByRole("heading", { name: "Findings" }));
  await p.goto(`${at.url}/console/sandboxes/${ids.get("shop-preview")}/code`);
  for (const code of ["import pandas as pd\nsales = pd.DataFrame({'month': ['Jan', 'Feb', 'Mar'], 'euros': [120, 180, 150]})\nsales.tail(2)", "sales.plot.bar(x='month', figsize=(6, 2.2), rot=0);"]) {
    await p.getByLabel("Code").fill(code);
    await p.keyboard.press("Control+Enter");
    await p.getByText("running…").waitFor({ state: "detached" });
  }
  await p.locator("img[src^='data:image/png']").waitFor();
  await take("code");
} finally {
  await browser.close();
  await endAll();
  await stop();
}
