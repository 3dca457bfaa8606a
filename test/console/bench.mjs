// How quick the console feels: `make bench-console`. CONSOLE_SANDBOXES real ones are made (1000), and a terminal is typed in.
import { execFileSync } from "node:child_process";
import { loadavg, cpus } from "node:os";
import { at, bothy, call, endAll, openBrowser, serve, stop, visit } from "./harness.mjs";

const n = Number(process.env.CONSOLE_SANDBOXES || 1000);
const turns = 5, keys = 100;
const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const results = {};
const tell = (name, value, wanted) => {
  results[name] = value;
  console.log(`${name.padEnd(44)} ${String(Math.round(value * 10) / 10).padStart(8)}   ${wanted}`);
};

async function make() {
  let next = 0;
  const some = async () => {
    while (next < n) {
      const i = next++;
      await call(at.admin, "POST", "/v1/sandboxes", {
        template: "python-3.12-bare", name: `agent-${i}`, memory_mb: 128, timeout_seconds: 3600, metadata: { team: `team-${i % 7}`, run: String(i) },
      });
    }
  };
  await Promise.all(Array.from({ length: 4 }, some));
}

/** The time from the navigation to the first rows and to the count of all, in a browser that knows nothing of the page yet. */
async function shown(browser, state) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, storageState: state });
  const p = await context.newPage();
  await p.addInitScript(() => {
    new MutationObserver(() => {
      if (!window.rowsAt && document.querySelector("tr.row")) requestAnimationFrame(() => (window.rowsAt ??= performance.now()));
    }).observe(document, { childList: true, subtree: true });
  });
  await p.goto(`${at.url}/console/`);
  const ms = await p.waitForFunction(() => window.rowsAt, undefined, { polling: 50 }).then((h) => h.jsonValue());
  await p.getByRole("button", { name: `all ${n}`, exact: false }).waitFor();
  return { p, ms };
}

/** Scrolls through the whole list and back, and says how many frames a second were drawn and how long the slow ones took. */
const scroll = (p) => p.evaluate(() => new Promise((done) => {
  const frame = document.querySelector(".frame");
  const times = [];
  let down = true, last;
  const step = (now) => {
    if (last !== undefined) times.push(now - last);
    last = now;
    frame.scrollTop += down ? 90 : -90;
    if (down && frame.scrollTop + frame.clientHeight >= frame.scrollHeight - 1) down = false;
    else if (!down && frame.scrollTop <= 0) return done(times);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}));

/** From a key's press to the frame in which the terminal shows it. */
async function typed(p, id) {
  await p.goto(`${at.url}/console/sandboxes/${id}/terminal`);
  await p.locator(".xterm-helper-textarea").waitFor();
  await p.getByText("Opening a terminal").waitFor({ state: "detached" });
  await p.locator(".xterm-rows", { hasText: "$" }).waitFor();
  await p.evaluate(() => {
    window.echoes = [];
    const rows = document.querySelector(".xterm-rows");
    const count = () => (rows.textContent.match(/q/g) ?? []).length;
    let pressed, had;
    document.addEventListener("keydown", () => ([pressed, had] = [performance.now(), count()]), true);
    new MutationObserver(() => {
      if (pressed && count() > had) window.echoes.push(performance.now() - pressed), (pressed = undefined);
    }).observe(rows, { childList: true, subtree: true, characterData: true });
  });
  for (let i = 1; i <= keys; i++) {
    await p.keyboard.press("q");
    await p.waitForFunction((i) => window.echoes.length >= i, i, { polling: 10 });
    if (i % 40 === 0) await p.keyboard.press("Control+u"), await p.waitForFunction(() => !/q/.test(document.querySelector(".xterm-rows").textContent), undefined, { polling: 10 });
  }
  return p.evaluate(() => window.echoes);
}

await serve("127.0.0.1:0");
const browser = await openBrowser();
try {
  const began = Date.now();
  await make();
  console.log(`${n} sandboxes after ${Math.round((Date.now() - began) / 1000)} s; ${cpus().length} processors, load ${loadavg()[0].toFixed(1)}`);
  const first = await visit(browser, at.admin);
  const state = await first.context().storageState();
  const times = [], frames = [];
  for (let i = 0; i < turns; i++) {
    const { p, ms } = await shown(browser, state);
    times.push(ms);
    if (i > 0) frames.push(await scroll(p));
    await p.context().close();
  }
  tell("list shown, ms (median)", quantile(times, 0.5), "1000 wanted");
  tell("list shown, ms (worst)", Math.max(...times), "");
  const rates = frames.map((f) => 1000 / (f.reduce((a, b) => a + b, 0) / f.length));
  tell("scrolled, frames a second (median)", quantile(rates, 0.5), "50 wanted");
  tell("scrolled, frames a second (worst turn)", Math.min(...rates), "");
  tell("slowest frame of a hundred, ms", quantile(frames.flat(), 0.99), "");

  const { items: [{ id }] } = await call(at.admin, "GET", "/v1/sandboxes?limit=1");
  const inPage = [], inShell = [];
  for (let i = 0; i < 2; i++) {
    inPage.push(...await typed(first, id));
    inShell.push(...JSON.parse(execFileSync("python3", ["echo.py", bothy, id, String(keys)], { cwd: import.meta.dirname, env: { ...process.env, BOTHY_URL: at.url, BOTHY_API_KEY: at.admin } })));
  }
  for (const [name, q] of [["median", 0.5], ["95 of a hundred", 0.95]]) {
    tell(`key in the page, ms (${name})`, quantile(inPage, q), "");
    tell(`key in bothy sh, ms (${name})`, quantile(inShell, q), "");
  }
  tell("the page takes longer by, ms", quantile(inPage, 0.5) - quantile(inShell, 0.5), "30 wanted");
  console.log(`load ${loadavg()[0].toFixed(1)} at the end`);
  if (process.env.CONSOLE_JSON) console.log(JSON.stringify(results));
} finally {
  await browser.close();
  await endAll();
  await stop();
}
