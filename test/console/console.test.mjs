// The console as its visitors meet it: in a browser, with a real server behind it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import net from "node:net";
import { after, before, test } from "node:test";
import { at, bothy, call, endAll, openBrowser, require, serve, stop, visit, work } from "./harness.mjs";

const { CONSOLE_QUICK: mode, CONSOLE_PICTURES: pictures } = process.env;
const whole = mode === "quick" ? test.skip : test;
let url, admin, reader, browser, page, box;

const run = (command) => call(admin, "POST", `/v1/sandboxes/${box}/exec`, { command });
const visitor = (key, path, from) => visit(browser, key, path, from);

async function accessible(p) {
  await p.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  for (const colorScheme of ["dark", "light"]) {
    await p.emulateMedia({ colorScheme });
    const { violations } = await p.evaluate(() => window.axe.run());
    const bad = violations.filter((v) => ["serious", "critical"].includes(v.impact));
    assert.deepEqual(bad.map((v) => [v.id, v.nodes.map((n) => n.html)]), [], `${p.url()} ${colorScheme}`);
  }
}

const picture = (p, name) => pictures && p.screenshot({ path: `${pictures}/${name}.png` });

before(async () => {
  await serve("127.0.0.1:0");
  ({ url, admin } = at);
  reader = (await call(admin, "POST", "/v1/tokens", { name: "reader", scopes: ["sandboxes:read", "templates:read"] })).key;
  box = (await call(admin, "POST", "/v1/sandboxes", {
    template: "python-3.12", timeout_seconds: 900, network: "restricted", metadata: { note: "<img src=x onerror=window.pwned=1>" },
  })).id;
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await endAll();
  await stop();
});

test("a login is a cookie that scripts cannot read, and ends", async () => {
  page = await visitor(admin);
  assert.equal(await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)), "{}{}");
  const [cookie] = await page.context().cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.expires > 0 && cookie.value !== admin, JSON.stringify(cookie));
  const replay = (headers) => fetch(`${url}/v1/sandboxes`, { headers: { cookie: `${cookie.name}=${cookie.value}`, ...headers } });
  assert.equal((await replay({ "x-bothy-console": "1" })).status, 200);
  assert.equal((await replay({})).status, 403, "without the console's header");
  assert.equal((await replay({ "x-bothy-console": "1", origin: "http://evil.test" })).status, 403, "from another origin");
  assert.equal((await replay({ "x-bothy-console": "1", "sec-fetch-site": "same-site" })).status, 403, "from a sibling");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("API key").waitFor();
  assert.equal((await replay({ "x-bothy-console": "1" })).status, 401, "after logging out");
  assert.ok(!readFileSync(`${work}/log`, "utf8").includes(admin), "the key is in the log");
});

test("the first page is small, and its policy strict", async () => {
  const p = await (await browser.newContext()).newPage();
  let sent = 0;
  const cdp = await p.context().newCDPSession(p);
  await cdp.send("Network.enable");
  cdp.on("Network.loadingFinished", (e) => (sent += e.encodedDataLength));
  const answer = await p.goto(`${url}/`);
  await p.getByLabel("API key").waitFor();
  assert.equal(new URL(p.url()).pathname, "/console/");
  assert.match(answer.headers()["content-security-policy"], /script-src 'self';.*frame-ancestors 'none'/);
  assert.ok(sent > 1000 && sent < 200_000, `${sent} bytes`);
  await accessible(p);
  await picture(p, "login");
  await p.context().close();
});

test("`bothy console` logs in once", async () => {
  const link = execFileSync(bothy, ["console", "--no-open"], { env: { ...process.env, BOTHY_URL: url, BOTHY_API_KEY: admin } }).toString().trim();
  assert.ok(!link.includes(admin));
  const p = await (await browser.newContext()).newPage();
  await p.goto(link);
  await p.getByRole("button", { name: "Log out" }).waitFor();
  assert.equal(p.url(), `${url}/console/`);
  const again = await (await browser.newContext()).newPage();
  await again.goto(link);
  await again.getByText("used already").waitFor();
  await p.context().close();
  await again.context().close();
});

test("the home page says what goes on, and where nothing does, how to begin", async () => {
  const p = await visitor(admin, "");
  const context = p.context();
  const json = (body) => ({ status: 200, contentType: "application/json", body: JSON.stringify(body) });
  const now = Date.now();
  const at = (ms) => new Date(now + ms).toISOString();
  const plain = { template: "t", engine: "gvisor", cpu: 1, memory_mb: 512, disk_mb: 2048, network: "off", timeout_seconds: 0, on_timeout: "pause", on_host_loss: "pause" };
  let some = [];
  await context.route("**/v1/sandboxes?*", (r) => {
    const states = new URL(r.request().url()).searchParams.get("state").split(",");
    return r.fulfill(json({ items: some.filter((s) => states.includes(s.state)) }));
  });
  await context.route("**/network/log?*", (r) => r.fulfill(json({ items: [{ time: at(-5000), name: "evil.example.org", port: 443, protocol: "tls", allowed: false, reason: "not allowed" }] })));
  await context.route("**/v1/usage?*", (r) => r.fulfill(json({ currency: "EUR", items: [{ cost: 1.5 }], total: { cost: 1.5 } })));
  await p.reload();
  await p.getByText("Three steps to the first sandbox").waitFor();
  await p.getByText(`export BOTHY_URL=${url} BOTHY_API_KEY=KEY`).waitFor();
  await p.getByRole("button", { name: "Create a key" }).click();
  await p.getByText("It is shown this once").waitFor();
  const key = /BOTHY_API_KEY=(\S+)/.exec(await p.locator(".first code").first().textContent())[1];
  await call(key, "GET", "/v1/sandboxes");
  await accessible(p);
  some = [
    { ...plain, id: "a", name: "alpha", state: "running", created_at: at(-1000), started_at: at(-960) },
    { ...plain, id: "b", state: "paused", created_at: at(-2000), started_at: at(-1900) },
    { ...plain, id: "c", name: "gamma", state: "failed", created_at: at(-3000), ended: { reason: "out_of_memory", detail: "memory ran out", at: at(-100) } },
  ];
  await p.reload();
  for (const text of ["1 paused", "100 ms", "1.50", "memory ran out", "evil.example.org:443"]) await p.getByText(text).first().waitFor();
  assert.equal(await p.locator(".figure", { hasText: "Running" }).locator("b").textContent(), "1");
  await p.getByRole("link", { name: "gamma" }).waitFor();
  await accessible(p);
  await picture(p, "home");
  await context.close();
});

test("the list is live, and what is in a label is text", async () => {
  page = await visitor(admin);
  await page.getByRole("link", { name: box }).waitFor();
  await page.getByText("note=<img src=x").waitFor();
  const { id } = await call(admin, "POST", "/v1/sandboxes", { template: "python-3.12-bare", name: "late" });
  await page.getByRole("link", { name: id }).waitFor();
  await picture(page, "sandboxes");
  await accessible(page);
  await page.getByLabel(`Choose ${id}`).check();
  await page.getByRole("button", { name: "Terminate 1" }).click();
  await page.getByRole("link", { name: id }).waitFor({ state: "detached" });
  await page.getByLabel("Filter").fill("no-such-sandbox");
  await page.getByText("No sandbox matches").waitFor();
  await page.reload(); // what is looked for is in the address
  await page.getByText("No sandbox matches").waitFor();
  await page.getByLabel("Filter").fill("");
  await page.getByRole("button", { name: "ended", exact: true }).click();
  await page.locator("tr.row", { hasText: id }).getByText("terminated").waitFor();
  await page.getByRole("button", { name: "ended", exact: true }).click();
  await page.getByRole("link", { name: box }).waitFor();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
});

test("a sandbox is made in the page", async () => {
  await page.getByRole("button", { name: "New sandbox" }).click();
  await page.getByRole("combobox", { name: "Template" }).selectOption("python-3.12-bare");
  await page.getByLabel("Name", { exact: true }).fill("made-here");
  await page.getByText("Network and secrets").click();
  await page.getByLabel("May reach (host names)").fill("example.com");
  await page.getByLabel("Secrets").fill("MADE_KEY=never-shown-here example.com");
  await page.getByText("Hosts", { exact: true }).click();
  await page.getByLabel("When its host is lost").selectOption("fail");
  await page.getByLabel("Checkpoint every, seconds").fill("60");
  await page.getByLabel("Labels of its host").fill("zone");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText('The label of hosts "zone" is not name=value.').waitFor();
  await page.getByLabel("Labels of its host").fill("zone=a");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText("host_labels requires a cluster", { exact: false }).waitFor();
  await page.getByText("The same as code").click();
  await page.getByLabel("Labels of its host").fill("");
  const shown = {};
  for (const language of ["Python", "JavaScript", "curl", "CLI"]) {
    await page.getByRole("button", { name: language, exact: true }).click();
    shown[language] = await page.locator("form .command code").textContent();
  }
  await accessible(page);
  await picture(page, "create");
  assert.equal(shown.Python.includes("never-shown"), false);
  assert.match(shown.Python, /^import os\n\nfrom bothy import Sandbox\n\nsbx = Sandbox\.create\(template="python-3\.12-bare", name="made-here", network=\{"mode": "restricted", "allow_domains": \["example\.com"\]\}/);
  assert.match(shown.JavaScript, /value: process\.env\.MADE_KEY, hosts: \["example\.com"\]/);
  const env = { ...process.env, BOTHY_URL: url, BOTHY_API_KEY: admin, MADE_KEY: "never-shown-here", PATH: `${bothy.slice(0, bothy.lastIndexOf("/"))}:${process.env.PATH}` };
  for (const language of ["curl", "CLI"]) { // what is shown does what the form does
    const said = execFileSync("sh", ["-c", shown[language]], { env }).toString().trim();
    const id = language === "curl" ? JSON.parse(said).id : said;
    const { network, on_host_loss, checkpoint_seconds, secret_names } = await call(admin, "GET", `/v1/sandboxes/${id}`);
    assert.deepEqual([network.allow_domains, on_host_loss, checkpoint_seconds, secret_names], [["example.com"], "fail", 60, ["MADE_KEY"]], language);
    await call(admin, "DELETE", `/v1/sandboxes/${id}`);
  }
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("heading", { name: "made-here" }).waitFor();
  const made = page.url().split("/").at(-1);
  assert.deepEqual((await call(admin, "GET", `/v1/sandboxes/${made}`)).network.allow_domains, ["example.com"]);
  const { on_host_loss, checkpoint_seconds } = await call(admin, "GET", `/v1/sandboxes/${made}`);
  assert.deepEqual([on_host_loss, checkpoint_seconds], ["fail", 60]);
  await page.getByText("If its host is lost").waitFor();
  await page.getByText("MADE_KEY", { exact: true }).waitFor();
  assert.ok(!(await page.content()).includes("never-shown-here"));
  assert.ok(!JSON.stringify(await call(admin, "GET", `/v1/sandboxes/${made}`)).includes("never-shown-here"));
  await page.getByRole("button", { name: "Terminate" }).click();
  await page.getByText("terminated", { exact: false }).first().waitFor();
});

test("a terminal takes what is typed", async () => {
  await page.goto(`${url}/console/sandboxes/${box}/terminal`);
  await page.locator(".xterm-helper-textarea").waitFor();
  await page.getByText("Opening a terminal").waitFor({ state: "detached" });
  await page.keyboard.type("echo typed-$((40+2)) >/workspace/typed; cat /workspace/typed\n");
  await page.locator(".xterm-rows", { hasText: "typed-42" }).waitFor();
  await picture(page, "terminal");
  assert.equal((await run("cat /workspace/typed")).stdout, "typed-42\n");
  await accessible(page);
});

/** Types a line into the terminal that is open, and waits for what it prints. */
async function typed(p, line, printed) {
  await p.locator(".xterm-helper-textarea").focus();
  await p.keyboard.type(`${line}\n`);
  await p.locator(".xterm-rows", { hasText: printed }).waitFor();
}

test("terminals last: over another page, a reload and the server's restart", async () => {
  const terminals = page.getByRole("navigation", { name: "Terminals" });
  await typed(page, "kept=$((40+2)); echo set-$kept", "set-42");
  const first = await terminals.getByRole("link").textContent();
  await page.getByRole("link", { name: "files", exact: true }).click();
  await page.getByLabel("Upload").waitFor();
  await page.getByRole("link", { name: "terminal", exact: true }).click();
  await typed(page, "echo tab-$kept", "tab-42");
  await page.keyboard.insertText("echo é😀-$kept"); // as input methods do
  await typed(page, "", "é😀-42");
  await terminals.getByRole("button", { name: "New terminal" }).click();
  await terminals.locator("a[aria-current=page]", { hasText: first }).waitFor({ state: "detached" });
  await typed(page, "echo other-${kept:-none}", "other-none");
  await stop();
  await page.getByText("The connection is lost").waitFor();
  await serve(new URL(url).host);
  await page.getByText("The connection is lost").waitFor({ state: "detached" });
  await typed(page, "echo again-${kept:-none}", "again-none");
  await terminals.getByRole("link", { name: first, exact: true }).click();
  await page.locator(".xterm-rows", { hasText: "tab-42" }).waitFor(); // what it printed before is shown again
  await page.reload();
  await typed(page, "echo load-$kept", "load-42");
  const second = terminals.getByRole("link").nth(1);
  await second.click();
  await page.locator(".xterm-rows", { hasText: "again-none" }).waitFor();
  await terminals.getByRole("button", { name: "End terminal" }).nth(1).click();
  await second.waitFor({ state: "detached" });
  await typed(page, "mkdir /tmp/seen; echo '<h1>seen</h1>' >/tmp/seen/index.html; python3 -m http.server -d /tmp/seen 8123 >/dev/null 2>&1 &", "1]");
  const [opened] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("button", { name: "Open port 8123" }).click()]);
  await opened.getByRole("heading", { name: "seen" }).waitFor();
  await opened.close();
  for (const link of (await call(admin, "GET", `/v1/sandboxes/${box}/links`)).items) await call(admin, "DELETE", `/v1/sandboxes/${box}/links/${link.id}`);
  await accessible(page);
  await picture(page, "terminals");
  await typed(page, "kill %1; wait; exit 3", "logout");
  await page.getByText("The shell ended with 3").waitFor();
});

test("Ctrl+K leads to sandboxes, pages and actions, and rows have keys", async () => {
  const { id } = await call(admin, "POST", "/v1/sandboxes", { template: "python-3.12-bare", name: "sought" });
  const p = await visitor(admin, "");
  const search = p.getByRole("combobox", { name: "Search" });
  const choose = async (words, name) => {
    await p.keyboard.press("Control+k");
    await p.keyboard.type(words);
    await p.getByRole("option", { name, selected: true }).waitFor();
    await p.keyboard.press("Enter");
    await search.waitFor({ state: "detached" });
  };
  await p.keyboard.press("Control+k");
  await p.getByRole("option", { name: `sought ${id}` }).waitFor();
  await accessible(p);
  await picture(p, "search");
  await p.keyboard.press("Escape");
  await search.waitFor({ state: "detached" });
  await choose("audit", "Audit");
  await p.getByRole("heading", { name: "Audit" }).waitFor();
  await choose("sought", `sought ${id}`);
  await p.waitForURL(`**/sandboxes/${id}`);
  await choose("pause sou", "Pause sought");
  await p.getByText("It is paused").waitFor();
  await p.goto(`${url}/console/sandboxes`);
  await p.getByRole("link", { name: id }).focus();
  await p.keyboard.press("p");
  await p.locator("tr.row", { hasText: id }).getByText("running").waitFor();
  await p.keyboard.press("ArrowDown");
  await p.waitForFunction((was) => !document.activeElement.textContent.includes(was) && document.activeElement.closest("tr.row"), id);
  await choose("terminate sought", "Terminate sought");
  await p.getByRole("link", { name: id }).waitFor({ state: "detached" });
  await p.context().close();
});

test("processes are live, whoever started them, and take signals", async () => {
  await page.goto(`${url}/console/sandboxes/${box}/processes`);
  await page.getByText("Ended", { exact: true }).waitFor(); // what was typed above
  await run("setsid sleep 987 </dev/null >/dev/null 2>&1 &");
  const row = page.locator("tr", { has: page.getByText("sleep 987", { exact: true }) });
  await row.getByText("user", { exact: true }).waitFor();
  await accessible(page);
  await picture(page, "processes");
  await row.getByRole("button", { name: "SIGTERM" }).click();
  await row.waitFor({ state: "detached" });
  assert.equal((await run("pgrep -f '[s]leep 987' || echo none")).stdout, "none\n");
});

whole("a terminal whose connection breaks joins its shell again", async () => {
  const lines = new Set(); // through a cable that can be cut: a browser's own end says goodbye, which ends the shell
  const cable = net.createServer((one) => {
    const other = net.connect(Number(new URL(url).port), "127.0.0.1");
    for (const [a, b] of [[one, other], [other, one]]) a.pipe(b).on("error", () => undefined), a.on("error", () => undefined), a.on("close", () => b.destroy()), lines.add(a);
  });
  await new Promise((r) => cable.listen(0, "127.0.0.1", r));
  const p = await visitor(admin, `sandboxes/${box}/terminal`, `http://127.0.0.1:${cable.address().port}`);
  await p.locator(".xterm-helper-textarea").focus();
  await p.keyboard.type("kept=$((40+2)); echo first-$kept\n");
  await p.locator(".xterm-rows", { hasText: "first-42" }).waitFor();
  for (const line of lines) line.destroy();
  await p.getByText("The connection is lost").waitFor();
  await p.keyboard.type("echo again-$kept\n");
  await p.getByText("The connection is lost").waitFor({ state: "detached" });
  await p.locator(".xterm-rows", { hasText: "again-42" }).waitFor();
  await p.context().close();
  cable.close();
});

whole("a link leads to a port of the sandbox, until it is revoked", async () => {
  await call(admin, "POST", `/v1/sandboxes/${box}/exec`, { background: true, command: "mkdir -p /tmp/site; cd /tmp/site; echo '<h1>from inside</h1>' >index.html; exec python3 -m http.server 8000" });
  await run("until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null; do sleep 0.1; done");
  await page.goto(`${url}/console/sandboxes/${box}/ports`);
  await page.getByRole("spinbutton", { name: "Port" }).fill("8000");
  await page.getByRole("button", { name: "Create link" }).click();
  const [opened] = await Promise.all([page.context().waitForEvent("page"), page.locator("main p a").click()]);
  await opened.getByRole("heading", { name: "from inside" }).waitFor();
  assert.notEqual(new URL(opened.url()).origin, url);
  assert.equal(await opened.evaluate(() => window.opener), null);
  await accessible(page);
  await page.getByRole("button", { name: "Revoke" }).click();
  await page.getByText("No links yet").waitFor();
  const answer = await opened.reload();
  assert.ok(answer.status() >= 400, `${answer.status()} after it was revoked`);
  await opened.close();
});

test("files go up, are edited and come down; their names do nothing", async () => {
  const evil = "<img src=x onerror=window.pwned=1>.txt";
  await page.goto(`${url}/console/sandboxes/${box}/files`);
  await page.getByLabel("Upload").setInputFiles({ name: "up.txt", mimeType: "text/plain", buffer: Buffer.from("sent up") });
  await page.getByRole("button", { name: "up.txt" }).click();
  await page.getByRole("textbox", { name: "up.txt" }).fill("edited");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Save", disabled: false }).waitFor();
  assert.equal((await run("cat /workspace/up.txt")).stdout, "edited");
  await run("printf 'def twice(n):\\r\\n\\treturn n * 2  # \\303\\251\\r\\n' >/workspace/colours.py");
  await page.reload();
  await page.getByRole("button", { name: "colours.py" }).click();
  await page.locator(".tok-keyword", { hasText: "return" }).waitFor();
  await page.getByRole("textbox", { name: "colours.py" }).press("Control+End");
  await page.keyboard.type("# end");
  await page.getByText("not saved").waitFor();
  await page.keyboard.press("Control+s");
  await page.getByText("not saved").waitFor({ state: "detached" });
  assert.equal((await run("cat /workspace/colours.py")).stdout, "def twice(n):\r\n\treturn n * 2  # é\r\n# end");
  await accessible(page);
  await page.getByRole("button", { name: "Close", exact: true }).click();
  await run(`mkdir -p /workspace/one/two; echo deep >/workspace/one/two/three.txt; echo x >'/workspace/${evil}'`);
  await page.goto(`${url}/console/sandboxes/${box}/files/workspace/one/two`); // every folder has an address
  await page.getByRole("button", { name: "three.txt" }).waitFor();
  await page.getByRole("navigation", { name: "Folder" }).getByRole("link", { name: "workspace" }).click();
  await page.evaluate(async () => { // a folder is dropped, as far as a script may
    const dropped = new DataTransfer();
    dropped.items.add(new File(["dragged in"], "dragged.txt"));
    document.querySelector(".files").dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
  });
  await page.getByRole("button", { name: "dragged.txt" }).waitFor();
  assert.equal((await run("cat /workspace/dragged.txt")).stdout, "dragged in");
  await page.getByRole("button", { name: evil }).waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("tr", { hasText: "up.txt" }).getByRole("button", { name: "Download" }).click()]);
  assert.equal(readFileSync(await download.path(), "utf8"), "edited");
  const cell = page.locator("td[draggable=true]", { hasText: "up.txt" }); // what is dragged out, as far as a script may see it
  const out = await cell.evaluate(async (td) => {
    td.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
    for (;;) {
      const e = new DragEvent("dragstart", { dataTransfer: new DataTransfer(), bubbles: true, cancelable: true });
      if (td.dispatchEvent(e)) return e.dataTransfer.getData("DownloadURL"); // it is refused until the bytes are there
      await new Promise(requestAnimationFrame);
    }
  });
  const [, kind, name, from] = /^([^:]*):([^:]*):(blob:.*)$/.exec(out);
  assert.deepEqual([kind, name], ["application/octet-stream", "up.txt"]);
  const [dragged] = await Promise.all([page.waitForEvent("download"), page.evaluate((href) => Object.assign(document.createElement("a"), { href, download: "x" }).click(), from)]);
  assert.equal(readFileSync(await dragged.path(), "utf8"), "edited");
  const [archive] = await Promise.all([page.waitForEvent("download"), page.locator("tr", { hasText: "one/" }).getByRole("button", { name: "Download" }).click()]);
  assert.equal(archive.suggestedFilename(), "one.tar");
  await page.getByLabel("Unpack a tar").setInputFiles({ name: "one.tar", mimeType: "application/x-tar", buffer: readFileSync(await archive.path()) });
  await page.getByRole("status").filter({ hasText: "one.tar" }).waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await accessible(page);
});

test("what was typed and the cells of a notebook outlive other pages and a reload, not the login", async () => {
  await run("echo first >/workspace/draft.txt");
  const p = await visitor(admin, `sandboxes/${box}/files`);
  const dialogs = [];
  p.removeAllListeners("dialog");
  p.on("dialog", (d) => (dialogs.push(d.type()), d.accept()));
  const tab = (name) => p.getByRole("navigation", { name: "Parts" }).getByRole("link", { name, exact: true }).click();
  const text = p.getByRole("textbox", { name: "draft.txt" });
  await p.getByRole("button", { name: "draft.txt" }).click();
  await text.fill("typed");
  await tab("code");
  await p.getByLabel("Code").fill("print('kept', 6 * 7)");
  await p.getByRole("button", { name: "Run", exact: true }).click();
  await p.getByLabel("Code").fill("not yet run");
  await tab("files");
  await p.getByText("not saved").waitFor();
  await tab("code"); // it ran on meanwhile
  await p.locator(".printed", { hasText: "kept 42" }).waitFor();
  await tab("files");
  await p.reload();
  await p.getByText("not saved").waitFor();
  assert.equal(await text.textContent(), "typed");
  await run("echo other >/workspace/draft.txt");
  dialogs.length = 0;
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByText("not saved").waitFor({ state: "detached" });
  assert.deepEqual(dialogs, ["confirm"], "it was changed meanwhile");
  assert.equal((await run("cat /workspace/draft.txt")).stdout, "typed");
  await tab("code");
  await p.locator(".printed", { hasText: "kept 42" }).waitFor();
  assert.equal(await p.getByLabel("Code").inputValue(), "not yet run");
  const [book] = await Promise.all([p.waitForEvent("download"), p.getByRole("button", { name: "Download .ipynb" }).click()]);
  const { nbformat, cells } = JSON.parse(readFileSync(await book.path(), "utf8"));
  assert.deepEqual([nbformat, cells[0].source, cells[0].outputs[0].text], [4, ["print('kept', 6 * 7)"], ["kept 42\n"]]);
  await p.getByLabel("Code").fill("import time\nprint('begun', flush=True)\ntime.sleep(600)");
  await p.keyboard.press("Control+Enter");
  await p.locator(".printed", { hasText: "begun" }).waitFor();
  await p.getByRole("button", { name: "Stop" }).click();
  await p.getByText("stopped before its end").waitFor();
  await p.getByRole("button", { name: "Run again" }).first().click();
  await p.locator(".cell", { hasText: "kept 42" }).getByText(/^\d+ ms$/).waitFor();
  await accessible(p);
  assert.notEqual(await p.evaluate(() => JSON.stringify(sessionStorage)), "{}");
  await p.getByRole("button", { name: "Log out" }).click();
  await p.getByLabel("API key").waitFor();
  assert.equal(await p.evaluate(() => JSON.stringify(sessionStorage)), "{}");
  await p.context().close();
});

test("a host that was refused is allowed live", async () => {
  await page.goto(`${url}/console/sandboxes/${box}/network`);
  await run("getent hosts example.net || true");
  const row = page.locator("tr", { hasText: "example.net" }).first();
  await row.getByText("refused").waitFor();
  await row.getByRole("button", { name: "Allow this host" }).click();
  await page.getByText("example.net.", { exact: false }).first().waitFor();
  const network = async () => (await call(admin, "GET", `/v1/sandboxes/${box}`)).network;
  assert.deepEqual((await network()).allow_domains, ["example.net"]);
  assert.equal((await network()).presets.length, 7, "the presets of restricted stay");
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Host names").fill("example.net *.example.org");
  await page.getByLabel("Address ranges", { exact: true }).fill("not a range");
  for (const preset of ["npm", "github", "go", "debian", "crates", "llm"]) await page.getByLabel(preset, { exact: true }).uncheck();
  await accessible(page);
  await page.getByRole("button", { name: "Set the policy" }).click();
  await page.getByRole("alert").filter({ hasText: "not" }).waitFor();
  assert.equal((await network()).presets.length, 7, "a mistake changes nothing");
  await page.getByLabel("Address ranges", { exact: true }).fill("198.51.100.0/24");
  await page.getByLabel("Only these ports").fill("443");
  await page.getByRole("button", { name: "Set the policy" }).click();
  await page.getByText("preset pypi, example.net, *.example.org, 198.51.100.0/24").waitFor();
  assert.deepEqual(await network(), { mode: "restricted", presets: ["pypi"], allow_domains: ["example.net", "*.example.org"], allow_cidrs: ["198.51.100.0/24"], allow_ports: [443] });
  await picture(page, "network");
});

test("a sandbox is changed while it lives, and events have a page", async () => {
  const { id } = await call(admin, "POST", "/v1/sandboxes", { template: "python-3.12-bare", name: "before", metadata: { team: "red" } });
  const p = await visitor(admin, `sandboxes/${id}/settings`);
  await p.getByLabel("Name", { exact: true }).fill("afterwards");
  await p.getByLabel("Labels").fill("team=blue\nnonsense");
  await p.getByLabel("When the time is up").selectOption("pause");
  await p.getByLabel("New time-out").fill("1200");
  await p.getByLabel("All its secrets anew").fill("KEY_OF_IT=never-shown-there example.com");
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByText('The label "nonsense" is not name=value.').waitFor();
  assert.equal((await call(admin, "GET", `/v1/sandboxes/${id}`)).name, "before");
  await p.getByLabel("Labels").fill("team=blue");
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByText("Saved.").waitFor();
  await p.waitForFunction(() => document.title === "settings · afterwards · Bothy");
  const { name, metadata, on_timeout, timeout_seconds, secret_names } = await call(admin, "GET", `/v1/sandboxes/${id}`);
  assert.deepEqual([name, metadata, on_timeout, timeout_seconds, secret_names], ["afterwards", { team: "blue" }, "pause", 1200, ["KEY_OF_IT"]]);
  assert.ok(!(await p.content()).includes("never-shown-there"));
  await accessible(p);
  await p.goto(`${url}/console/events`);
  await p.locator("tr", { hasText: id }).getByText("Created").waitFor();
  await call(admin, "DELETE", `/v1/sandboxes/${id}`);
  await p.locator("tr", { hasText: id }).getByText("Ended").waitFor(); // as it happens
  await p.getByLabel("Type").selectOption("sandbox.ended");
  await p.locator("tr", { hasText: id }).getByText("Created").waitFor({ state: "detached" });
  await accessible(p);
  await picture(p, "events");
  await p.context().close();
});

whole("webhooks are made, tried, disabled and deleted", async () => {
  const p = await visitor(admin, "webhooks");
  await p.getByText("No webhooks.").waitFor();
  await p.getByLabel("URL").fill("http://127.0.0.1:9/hook");
  await p.getByLabel("Only these types").fill("sandbox.ended, nonsense");
  await p.getByRole("button", { name: "Create webhook" }).click();
  await p.getByRole("alert").filter({ hasText: "nonsense" }).waitFor();
  await p.getByLabel("Only these types").fill("sandbox.ended");
  await p.getByRole("button", { name: "Create webhook" }).click();
  await p.getByText("shown this once").waitFor();
  const row = p.locator("tr", { hasText: "http://127.0.0.1:9/hook" });
  await row.getByText("nothing sent yet").waitFor();
  await row.getByRole("button", { name: "Test" }).click();
  await p.getByRole("status").filter({ hasText: "after" }).waitFor();
  await accessible(p);
  await picture(p, "webhooks");
  await row.getByRole("button", { name: "Disable" }).click();
  await row.getByText("disabled").waitFor();
  await row.getByRole("button", { name: "Delete" }).click();
  await p.getByText("No webhooks.").waitFor();
  await p.context().close();
});

whole("an environment of managed agents is attached, says why it fails, and is detached", async () => {
  const p = await visitor(admin, "agents");
  await p.getByText("No environment is attached.").waitFor();
  await p.getByLabel("Environment", { exact: true }).fill("env_of_a_test");
  await p.getByLabel("Environment key").fill("short");
  await p.getByLabel("Service").fill("https://agents.invalid");
  await p.getByLabel("Template").fill("python-3.12-bare");
  await p.getByRole("button", { name: "Attach environment" }).click();
  await p.getByRole("alert").filter({ hasText: "not an environment key" }).waitFor();
  await p.getByLabel("Environment key").fill("key-of-the-environment");
  await p.getByRole("button", { name: "Attach environment" }).click();
  const row = p.locator("tr", { hasText: "env_of_a_test" });
  await row.getByText("failing: the queue cannot be reached").waitFor();
  assert.ok(!(await p.content()).includes("key-of-the-environment"));
  await accessible(p);
  await picture(p, "agents");
  await row.getByRole("button", { name: "Detach" }).click();
  await p.getByText("No environment is attached.").waitFor();
  await p.context().close();
});

whole("hosts of a cluster are listed, drained, removed and invited", async () => {
  const p = await visitor(admin, "host");
  await p.getByRole("heading", { name: "Engines" }).waitFor();
  assert.equal(await p.getByRole("region", { name: "Hosts of the cluster" }).count(), 0, "this server is alone");
  const host = { address: "10.0.0.1:7700", state: "up", self: false, epoch: 1, joined_at: "2026-01-01T00:00:00Z", lease_seconds: 9, sandboxes: 3, live: 2, ready: 1, cpus: 8, load: 0.5, max_sandboxes: 0, memory_bytes: 16e9, free_memory_bytes: 8e9 };
  const items = [{ ...host, name: "one", self: true }, { ...host, name: "two" }, { ...host, name: "three", state: "dead", start_problem: "no room" }];
  const asked = []; // the server of this test has no other hosts: the answers are a cluster's
  await p.route("**/v1/hosts", (r) => r.fulfill({ json: r.request().method() === "POST" ? { token: "t", command: "bothy join it", expires_at: "2030-01-01T00:00:00Z" } : { items } }));
  await p.route("**/v1/hosts/*", (r) => (asked.push(`${r.request().method()} ${new URL(r.request().url()).pathname} ${r.request().postData() ?? ""}`), r.fulfill({ json: items[1] })));
  await p.reload();
  await p.locator("tr", { hasText: "three" }).getByText("no room").waitFor();
  await p.getByRole("button", { name: "Drain two" }).click();
  await p.getByRole("button", { name: "Remove three" }).click();
  await p.getByRole("button", { name: "Invite a host" }).click();
  await p.getByText("bothy join it").waitFor();
  assert.deepEqual(asked, ['PATCH /v1/hosts/two {"state":"draining"}', "DELETE /v1/hosts/three "]);
  await accessible(p);
  await picture(p, "hosts");
  await p.context().close();
});

whole("what a command prints is followed, as text", async () => {
  await page.goto(`${url}/console/sandboxes/${box}/logs`);
  await call(admin, "POST", `/v1/sandboxes/${box}/exec`, { background: true, command: "echo '<img src=x onerror=window.pwned=1>'; until [ -e /workspace/more ]; do sleep 0.1; done; echo later" });
  const log = page.getByRole("log").filter({ hasText: "<img src=x" });
  await log.waitFor();
  await run("touch /workspace/more");
  await log.filter({ hasText: "later" }).waitFor();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await accessible(page);
});

whole("HTML of a cell is shut in a frame without scripts", async () => {
  await page.goto(`${url}/console/sandboxes/${box}/code`);
  await page.getByLabel("Code").fill("class H:\n  def _repr_html_(self): return '<b>bold</b><script>parent.pwned=1;document.title=1</script>'\nH()");
  await page.getByRole("button", { name: "Run" }).click();
  await page.frameLocator("iframe").getByText("bold").waitFor();
  assert.equal(await page.locator("iframe").getAttribute("sandbox"), "");
  await page.getByLabel("Code").fill("import sys, time\nprint('begun', flush=True)\nwhile not __import__('os').path.exists('/workspace/go-on'): time.sleep(0.1)\nprint('<img src=x onerror=window.pwned=1>')");
  await page.keyboard.press("Control+Enter");
  await page.locator(".printed", { hasText: "begun" }).waitFor(); // while it runs
  await page.getByText("running…").waitFor();
  await run("touch /workspace/go-on");
  await page.locator(".printed", { hasText: "<img src=x" }).waitFor();
  await page.getByLabel("Code").fill("import matplotlib.pyplot as plt, pandas\nplt.plot([1, 3, 2])\nplt.show()\npandas.DataFrame({'a': [1, 2]})");
  await page.keyboard.press("Control+Enter");
  await page.locator("img[src^='data:image/png']").waitFor();
  await page.frameLocator("iframe").last().getByRole("columnheader", { name: "a" }).waitFor();
  await accessible(page);
  await picture(page, "code");
  assert.equal(await page.evaluate(() => window.pwned), undefined);
});

whole("a plot moves, and the page of a sandbox can be read by all", async () => {
  await page.goto(`${url}/console/sandboxes/${box}`);
  const line = page.locator("polyline").nth(1);
  await page.waitForFunction(() => document.querySelectorAll("polyline")[1]?.getAttribute("points").includes(" "));
  const before = await line.getAttribute("points");
  await page.waitForFunction((was) => document.querySelectorAll("polyline")[1].getAttribute("points") !== was, before);
  await page.locator(".life").getByText("Created").waitFor();
  await accessible(page);
  await picture(page, "sandbox");
});

test("a paused sandbox is resumed from each of its pages", async () => {
  const { id } = await call(admin, "POST", "/v1/sandboxes", { template: "python-3.12-bare", name: "naps" });
  const p = await visitor(admin);
  for (const tab of ["", "/terminal", "/files", "/processes"]) {
    await call(admin, "POST", `/v1/sandboxes/${id}/pause`, {});
    await p.goto(`${url}/console/sandboxes/${id}${tab}`);
    const note = p.getByText("It is paused");
    await p.locator("main", { has: note }).getByRole("button", { name: "Resume" }).click();
    await note.waitFor({ state: "detached" });
    assert.equal((await call(admin, "GET", `/v1/sandboxes/${id}`)).state, "running", tab);
  }
  await p.context().close();
  await call(admin, "DELETE", `/v1/sandboxes/${id}`);
});

test("the family is drawn: forks branch, rollbacks lead back, and a dot is forked from by key", async () => {
  const at = (s) => new Date(Date.UTC(2026, 2, 1, 12) + s * 1000).toISOString();
  const plain = { state: "running", template: "t", engine: "gvisor", cpu: 1, memory_mb: 512, disk_mb: 2048, network: "off", timeout_seconds: 0, on_timeout: "pause", on_host_loss: "pause" };
  const sandboxes = [
    { ...plain, id: "root", name: "root", created_at: at(0), resumed: { snapshot_id: "first", kind: "memory", at: at(40) } },
    { ...plain, id: "child", name: "child", created_at: at(51), parent_snapshot_id: "first", parent_sandbox_id: "root", forked_at: at(50) },
    { ...plain, id: "grandchild", name: "grandchild", created_at: at(61), parent_snapshot_id: "first", parent_sandbox_id: "child", forked_at: at(60) },
    { ...plain, id: "twin", name: "twin", created_at: at(70), parent_snapshot_id: "second", parent_sandbox_id: "root", forked_at: at(30) },
    ...Array.from({ length: 100 }, (_, i) => ({ ...plain, id: `many${i}`, created_at: at(100 + i), parent_sandbox_id: "twin", forked_at: at(100 + i) })),
  ];
  const shot = { template: "t", kind: "memory", size_bytes: 1 << 20, durable: "host", sandbox_id: "root" };
  const snapshots = [{ ...shot, id: "second", name: "risky", parent_id: "first", created_at: at(30) }, { ...shot, id: "first", name: "good", created_at: at(10) }];
  const p = await visitor(reader);
  const context = p.context();
  const json = (body) => ({ status: 200, contentType: "application/json", body: JSON.stringify(body) });
  await context.route("**/v1/snapshots?*", (r) => r.fulfill(json({ items: snapshots })));
  await context.route("**/v1/snapshots/second/changes?*", (r) => r.fulfill(json({ items: [{ path: "/workspace/<img src=x>", change: "added", type: "file", size: 1 }], truncated: false })));
  await context.route("**/v1/sandboxes?*", (r) => r.fulfill(json({ items: r.request().url().includes("stopped") ? [] : sandboxes })));
  await context.route("**/console/session", async (r) => r.fulfill(json({ ...(await (await r.fetch()).json()), scopes: ["sandboxes:read", "sandboxes:write"] })));
  let forked;
  await context.route("**/v1/sandboxes", (r) => {
    forked = r.request().postDataJSON();
    return r.fulfill(json({ ...plain, id: "made", created_at: at(600) }));
  });
  await p.goto(`${url}/console/snapshots`);
  const focused = (name) => p.waitForFunction((n) => [document.activeElement.getAttribute("aria-label"), document.activeElement.textContent].includes(n), name);
  const dot = (name) => p.getByRole("button", { name, exact: true });
  await dot("Snapshot good of root").waitFor();
  const drawn = (what) => p.locator(`.family ${what}`).evaluateAll((all) => all.map((e) => e.getAttribute("d") ?? e.getAttribute("cx")));
  assert.equal((await drawn(".branch")).length, 103);
  const [[back], x] = [await drawn(".back"), async (name) => (await dot(name).locator("circle").first().getAttribute("cx"))];
  assert.match(back, new RegExp(`^M${await x("Snapshot risky of root")} .* ${await x("Snapshot good of root")} \\d+$`), "from the state that was left to the snapshot");
  assert.ok((await drawn(".branch")).some((d) => d.startsWith(`M${back.slice(1).split(" ")[0]} `)), "the twin branches off at its snapshot");
  await dot("Snapshot good of root").focus();
  await p.keyboard.press("ArrowRight");
  await focused("Snapshot risky of root");
  await p.locator(".changes").getByText("/workspace/<img src=x>").waitFor();
  await p.keyboard.press("ArrowRight");
  await focused("root, running");
  await p.keyboard.press("ArrowDown");
  await focused("child, running");
  await p.keyboard.press("ArrowDown");
  await focused("grandchild, running");
  await dot("Snapshot risky of root").focus();
  await Promise.all([p.keyboard.press("Enter"), p.keyboard.press("Enter")]);
  await p.getByRole("status").getByRole("link", { name: "made" }).waitFor();
  assert.equal(forked.snapshot_id, "second");
  await Promise.all([p.keyboard.press("Escape"), p.keyboard.press("ArrowLeft")]);
  await focused("Snapshot good of root");
  await picture(p, "family");
  await accessible(p);
  await context.close();
});

whole("two snapshots are compared in the tree", async () => {
  await run("cd /workspace; echo one >stays; echo one >changes; echo '<img src=x onerror=window.pwned=1>' >goes");
  await call(admin, "POST", `/v1/sandboxes/${box}/snapshots`, { name: "first" });
  await run("cd /workspace; echo two >changes; rm goes; touch stays; mkdir made; echo new >'made/<img src=x onerror=window.pwned=1>'");
  await call(admin, "POST", `/v1/sandboxes/${box}/snapshots`, { name: "second" });
  await page.goto(`${url}/console/snapshots`);
  await page.locator(".node", { has: page.getByText("second", { exact: true }) }).getByRole("button", { name: "Compare" }).click();
  const rows = page.getByRole("region", { name: "Changes" }).locator("tbody tr", { hasText: "/workspace" });
  await rows.first().waitFor();
  assert.deepEqual(await rows.allTextContents(), ["changed/workspace/changes4 B", "removed/workspace/goes35 B", "added/workspace/made/", "added/workspace/made/<img src=x onerror=window.pwned=1>4 B"]);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await accessible(page);
  const [from, to] = await page.getByRole("region", { name: "Comparison" }).locator("select").all();
  await to.selectOption(await from.inputValue());
  await page.getByText("All files are the same").waitFor();
});

whole("fork and roll back in the tree", async () => {
  await run("echo before >/workspace/state");
  const snapshot = await call(admin, "POST", `/v1/sandboxes/${box}/snapshots`, { name: "here" });
  await run("echo after >/workspace/state");
  await page.goto(`${url}/console/snapshots`);
  const node = page.locator(".node", { has: page.getByText("here", { exact: true }) });
  await node.getByRole("button", { name: "Roll back" }).click();
  await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
  assert.equal((await run("cat /workspace/state")).stdout, "before\n");
  await accessible(page);
  await node.getByRole("button", { name: "Fork" }).click();
  await page.waitForURL(/sandboxes\/.+/);
  const id = page.url().split("/").at(-1);
  assert.equal((await call(admin, "GET", `/v1/sandboxes/${id}`)).parent_snapshot_id, snapshot.id);
  await page.goto(`${url}/console/snapshots`);
  await page.locator(".tree").getByRole("link", { name: id }).waitFor();
  await picture(page, "snapshots");
});

whole("snapshots are resumed, exported and deleted in the tree", async () => {
  const { id } = await call(admin, "POST", "/v1/sandboxes", { template: "python-3.12-bare", name: "sleeper" });
  await call(admin, "POST", `/v1/sandboxes/${id}/pause`, { name: "asleep" });
  await page.goto(`${url}/console/snapshots`);
  const node = page.locator(".node", { has: page.getByText("asleep", { exact: true }) });
  const [file] = await Promise.all([page.waitForEvent("download"), node.getByRole("button", { name: "Export" }).click()]);
  assert.equal(file.suggestedFilename(), "asleep.bothy");
  assert.ok(readFileSync(await file.path()).length > 10_000);
  await node.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("alert").getByText("is paused in").waitFor();
  await node.getByRole("button", { name: "Resume" }).click();
  await page.waitForURL(`${url}/console/sandboxes/${id}`);
  assert.equal((await call(admin, "GET", `/v1/sandboxes/${id}`)).state, "running");
  await page.goto(`${url}/console/snapshots`);
  await node.getByRole("button", { name: "Delete" }).click();
  await node.waitFor({ state: "detached" });
  await call(admin, "DELETE", `/v1/sandboxes/${id}`);
});

whole("the keyboard is enough", async () => {
  const p = await visitor();
  await p.getByLabel("API key").waitFor();
  const tabTo = async (locator) => {
    for (let n = 0; n < 60; n++) {
      await p.keyboard.press("Tab");
      if (await locator.evaluate((e) => e === document.activeElement)) return;
    }
    assert.fail(`no way to ${locator} by the tab key`);
  };
  await tabTo(p.getByLabel("API key"));
  await p.keyboard.type(admin);
  await p.keyboard.press("Enter");
  await p.getByRole("link", { name: box }).waitFor();
  await tabTo(p.getByRole("link", { name: box }));
  await p.keyboard.press("Enter");
  await p.getByRole("heading", { name: box }).waitFor();
  await tabTo(p.getByRole("link", { name: "files", exact: true }));
  await p.keyboard.press("Enter");
  await p.getByRole("button", { name: "colours.py" }).waitFor();
  await tabTo(p.getByRole("button", { name: "colours.py" }));
  await p.keyboard.press("Enter");
  const editor = p.getByRole("textbox", { name: "colours.py" });
  await editor.waitFor();
  assert.ok(await editor.evaluate((e) => e === document.activeElement), "an opened file has the focus");
  await tabTo(p.getByRole("button", { name: "Save" })); // the editor lets the tab key go
  await p.keyboard.press("Enter");
  await tabTo(p.getByRole("link", { name: "snapshots", exact: true }));
  await p.keyboard.press("Enter");
  await p.getByRole("heading", { name: "Snapshots" }).waitFor();
  await p.context().close();
});

whole("a narrow screen needs no scrolling sideways", async () => {
  const p = await visitor(admin);
  await p.setViewportSize({ width: 400, height: 800 });
  const rooms = ["sandboxes", "snapshots", "templates", "usage", "projects", "keys", "audit", "host"];
  for (const at of [...rooms, ...["overview", "terminal", "files", "code", "processes", "network", "ports", "logs"].map((tab) => `sandboxes/${box}/${tab}`)]) {
    await p.goto(`${url}/console/${at}`);
    await p.locator("main").waitFor();
    await p.waitForFunction(() => !document.querySelector("main > [role=status]") || document.querySelector("main table, main .shell"));
    const wide = await p.evaluate(() => [document.documentElement, ...document.querySelectorAll("main, header")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => `${e.localName} ${e.scrollWidth} of ${e.clientWidth}`));
    assert.deepEqual(wide, [], at);
    await picture(p, `narrow-${at.replaceAll("/", "-")}`);
  }
  await p.goto(`${url}/console/sandboxes`);
  await p.getByRole("button", { name: "New sandbox" }).click();
  assert.ok(await p.evaluate(() => document.documentElement.scrollWidth <= 400));
  await accessible(p);
  await p.context().close();
});

test("the host says what it has, holds and lacks", async () => {
  await page.goto(`${url}/console/host`);
  await page.getByRole("cell", { name: "gvisor", exact: true }).waitFor();
  await page.getByRole("meter", { name: "Memory" }).waitFor();
  const found = page.locator("tr", { has: page.getByRole("cell", { name: "disk", exact: true }) });
  assert.match(await found.textContent(), /MiB are free/);
  const h = await call(admin, "GET", "/v1/host");
  assert.ok(h.cpus > 0 && h.memory_bytes > h.free_memory_bytes && h.disk_bytes > h.free_disk_bytes && h.free_disk_bytes > 0, JSON.stringify(h));
  const creations = h.creations.reduce((n, c) => n + c.count, 0);
  assert.ok(creations > 0, "the sandboxes of before are in the histogram");
  await page.getByText(/requests? since the server was started/).waitFor();
  assert.ok(Array.isArray(h.pool.contents));
  await accessible(page);
  await picture(page, "host");
});

whole("a template is built from a Dockerfile, and its log followed", async () => {
  const name = `of-a-test/console-${process.pid}`;
  await page.goto(`${url}/console/templates`);
  await page.getByText("Build from a Dockerfile").click();
  const start = async (dockerfile) => {
    await page.getByLabel("Name of the template").fill(name);
    await page.getByLabel("Dockerfile", { exact: true }).fill(dockerfile);
    await page.getByRole("button", { name: "Build", exact: true }).click();
  };
  const log = page.getByRole("log");
  const row = page.getByRole("region", { name: "Builds" }).locator("tbody tr", { hasText: name });
  try {
    await start("FROM python-3.12-bare\nCOPY note.txt /note.txt\nRUN no-such-command <b>bold</b>\n");
    await log.getByText("nothing was sent").or(log.getByText("note.txt")).first().waitFor();
    await row.first().getByText("failed").waitFor();

    const folder = `${work}/context`;
    mkdirSync(folder, { recursive: true });
    const note = `a note at ${Date.now()}`; // what is known is not done again, and says nothing
    writeFileSync(`${folder}/note.txt`, note);
    await page.getByLabel("Folder for COPY").setInputFiles(folder);
    await start("FROM python-3.12-bare\nCOPY note.txt /note.txt\nRUN echo said: $(cat /note.txt)\n");
    await log.getByText(`said: ${note}`).waitFor();
    await row.getByText("succeeded").first().waitFor();
    await page.locator("tbody tr td:first-child", { hasText: name }).nth(2).waitFor(); // it is among the templates, too
    await accessible(page);

    await start("FROM python-3.12-bare\nRUN echo waits; sleep 600\n");
    await log.getByText("waits", { exact: false }).last().waitFor();
    await row.first().getByRole("button", { name: "Cancel" }).click();
    await row.getByText("cancelled").first().waitFor();
  } finally {
    await call(admin, "DELETE", `/v1/templates/${encodeURIComponent(name)}`).catch(() => {});
  }
});

whole("the other pages open without trouble", async () => {
  for (const room of ["templates", "usage", "projects", "keys", "audit"]) {
    await page.goto(`${url}/console/${room}`);
    await page.locator("tbody tr").first().waitFor();
    assert.equal(await page.getByRole("alert").count(), 0, room);
    await accessible(page);
    await picture(page, room);
  }
  await page.getByRole("button", { name: "Verify" }).click();
  await page.getByText("are unaltered").waitFor();
  await page.getByLabel("Action").fill("create-sandbox");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => [...document.querySelectorAll("tbody tr")].every((r) => r.textContent.includes("create-sandbox")));
  await page.getByLabel("Sandbox").fill(box);
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await page.reload();
  assert.equal(await page.getByLabel("Action").inputValue(), "create-sandbox");
  await page.goto(`${url}/console/usage`);
  await page.getByLabel("By").selectOption("label");
  await page.getByLabel("Label", { exact: true }).fill("note");
  await page.keyboard.press("Enter");
  await page.getByRole("columnheader", { name: "label:note" }).waitFor();
  await page.locator("tbody td", { hasText: "<img src=x" }).waitFor();
  const [csv] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
  assert.match(readFileSync(await csv.path(), "utf8"), /^"label:note",cost,currency,[^]*"<img src=x/);
  await page.goto(`${url}/console/projects`);
  await page.getByLabel("Budget of default").fill("25");
  await page.getByRole("button", { name: "Change" }).first().click();
  await page.getByText(/of 25 [A-Z]+/).waitFor();
  assert.equal((await call(admin, "GET", "/v1/projects/default")).budget.limit, 25);
  await page.goto(`${url}/console/keys`);
  await page.getByLabel("Name").fill("of the page");
  await page.getByRole("button", { name: "Make a key" }).click();
  const key = await page.getByRole("status").locator("code").textContent();
  await call(key, "GET", "/v1/sandboxes");
  await page.locator("tr", { hasText: "of the page" }).getByRole("button", { name: "Revoke" }).click();
  await page.locator("tr", { hasText: "of the page" }).waitFor({ state: "detached" });
  assert.equal((await fetch(`${url}/v1/sandboxes`, { headers: { authorization: `Bearer ${key}` } })).status, 401);
});

whole("a command of an empty page can be copied", async () => {
  const p = await visitor("", "", url);
  await p.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await p.getByRole("button", { name: "Copy: bothy console" }).click();
  await p.getByText("Copied").waitFor();
  assert.equal(await p.evaluate(() => navigator.clipboard.readText()), "bothy console");
  await p.context().close();
});

whole("a login that is over leads back to the key", async () => {
  const p = await visitor(admin, `sandboxes/${box}`);
  await p.getByRole("heading", { name: box }).waitFor();
  await p.context().clearCookies();
  await p.getByText("The login has ended").waitFor();
  await p.getByLabel("API key").fill(admin);
  await p.getByRole("button", { name: "Log in" }).click();
  await p.getByRole("heading", { name: box }).waitFor(); // where the visitor was
  await p.context().close();
  const expires_at = new Date(Date.now() + 15_000).toISOString(); // a login ends with its key
  const { key } = await call(admin, "POST", "/v1/tokens", { name: "brief", scopes: ["sandboxes:read"], expires_at });
  const brief = await visitor(key);
  await brief.getByRole("link", { name: box }).waitFor();
  await brief.getByText("The login has ended").waitFor({ timeout: 30_000 });
  await brief.context().close();
});

test("who may only read touches nothing", async () => {
  const p = await visitor(reader, `sandboxes/${box}`);
  await p.getByRole("heading", { name: box }).waitFor();
  for (const name of ["Terminate", "Pause", "Fork"]) assert.equal(await p.getByRole("button", { name }).count(), 0, name);
  const status = await p.evaluate((id) => fetch(`/v1/sandboxes/${id}`, { method: "DELETE", headers: { "X-Bothy-Console": "1" } }).then((r) => r.status), box);
  assert.equal(status, 403);
  await p.context().close();
});

test("the reference of the API shows three examples of each operation, and sends requests", async () => {
  const p = await visitor(admin);
  const refused = [];
  p.on("console", (m) => m.type() === "error" && refused.push(m.text()));
  const answer = await p.goto(`${url}/docs#exec`);
  assert.match(answer.headers()["content-security-policy"], /script-src 'self'; style-src 'self';.*frame-ancestors 'none'/);
  const exec = p.locator("#exec");
  await exec.getByText('curl -X POST "$BOTHY_URL/v1/sandboxes/SANDBOX_ID/exec"').waitFor();
  await exec.getByRole("button", { name: "Python" }).click();
  await exec.getByText("from bothy import Sandbox").waitFor();
  assert.equal(await exec.getByText("curl -X POST").isVisible(), false);
  await exec.getByRole("button", { name: "JavaScript" }).click();
  await exec.getByText("new Bothy()").waitFor();
  await exec.getByLabel("id", { exact: true }).fill(box);
  await exec.getByLabel("Body", { exact: true }).fill(JSON.stringify({ command: "echo '<img src=x onerror=window.pwned=1>' tried-$((40+2))" }));
  await exec.getByRole("button", { name: "Send POST" }).click();
  await exec.getByLabel("Answer").filter({ hasText: "tried-42" }).waitFor();
  await exec.getByText(/^200 /).waitFor();
  assert.equal(await p.evaluate(() => window.pwned), undefined);
  await p.getByLabel("Find an operation").fill("list events");
  await p.locator("#list-events summary").click();
  await p.locator("#list-events").getByRole("button", { name: "Send GET" }).click();
  await p.locator("#list-events").getByLabel("Answer").filter({ hasText: "sandbox" }).waitFor();
  assert.equal(await exec.isVisible(), false);
  await p.getByLabel("Find an operation").fill("");
  const ids = Object.values(JSON.parse(await (await fetch(`${url}/openapi.json`)).text()).paths).flatMap((item) => Object.values(item).map((o) => o.operationId));
  assert.deepEqual(await p.locator("details").evaluateAll((all) => all.map((d) => d.id).sort()), ids.sort(), "all operations are shown");
  await accessible(p);
  await picture(p, "api");
  assert.deepEqual(refused, []);
  await p.context().close();
  const stranger = await (await browser.newContext()).newPage();
  await stranger.goto(`${url}/docs#exec`);
  await stranger.locator("#exec").getByRole("link", { name: "the console" }).waitFor();
  assert.equal(await stranger.getByRole("button", { name: "Send POST" }).count(), 0);
  await stranger.context().close();
});

test("another project's sandbox is not there", async () => {
  await call(admin, "POST", "/v1/projects", { id: "other", plan: "unlimited" });
  const { key } = await call(admin, "POST", "/v1/tokens", { project: "other", scopes: ["sandboxes:read", "sandboxes:write"] });
  const p = await visitor(key, `sandboxes/${box}`);
  await p.getByRole("alert").getByText(box).waitFor();
  await p.context().close();
});

test("a page outlives the server, and ends with its key", async () => {
  const { id, key } = await call(admin, "POST", "/v1/tokens", { name: "short", scopes: ["sandboxes:read"] });
  const p = await visitor(key);
  await p.getByRole("link", { name: box }).waitFor();
  await stop("SIGKILL");
  await p.getByText("The connection to the server is lost").waitFor();
  await serve(new URL(url).host);
  await p.getByText("The connection to the server is lost").waitFor({ state: "detached" });
  await p.getByRole("link", { name: box }).waitFor();
  await call(admin, "DELETE", `/v1/tokens/${id}`);
  await p.getByText("The login has ended").waitFor();
  await p.context().close();
});
