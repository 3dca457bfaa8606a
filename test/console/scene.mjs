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
} finally {
  await browser.close();
  await endAll();
  await stop();
}
