// What a page of one tenant's sandbox can do to a visitor who also holds a link to
// another tenant's: nothing but lead him there. In a real browser, since it is the
// browser that adds cookies and says where a request comes from.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const { BOTHY_URL: url, BOTHY_API_KEY: admin, LINK_DOMAIN: domain } = process.env;
// Siblings below a domain that is on no public suffix list are one site: there the
// browser sends the cookie along. Those of *.localhost are not.
const sameSite = domain !== "localhost";

async function call(key, method, path, body) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
}

async function tenant(project) {
  await call(admin, "POST", "/v1/projects", { id: project, plan: "unlimited" });
  const { key } = await call(admin, "POST", "/v1/tokens", { project, scopes: ["sandboxes:read", "sandboxes:write"] });
  const { id } = await call(key, "POST", "/v1/sandboxes", { template: "python-3.12-bare", timeout_seconds: 600 });
  const base = `/v1/sandboxes/${id}`;
  await call(key, "POST", `${base}/files`, { path: "/workspace/inside.py", content: await readFile("inside.py", "utf8") });
  await call(key, "POST", `${base}/exec`, { command: "python3 inside.py", background: true });
  await call(key, "POST", `${base}/exec`, { command: "until (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.05; done" });
  const link = new URL((await call(key, "POST", `${base}/links`, { port: 8080 })).url);
  return { link, origin: link.origin, seen: () => call(key, "GET", `${base}/ports/8080/seen`), end: () => call(key, "DELETE", base) };
}

let victim, attacker, browser, context;

before(async () => {
  [victim, attacker] = await Promise.all([tenant("victim"), tenant("attacker")]);
  browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", `--host-resolver-rules=MAP *.${domain} 127.0.0.1`],
  });
  context = await browser.newContext({ ignoreHTTPSErrors: true });
});

after(async () => {
  await browser?.close();
  await Promise.all([victim?.end(), attacker?.end()]);
});

async function visit(address) {
  const page = await context.newPage();
  const answer = await page.goto(String(address));
  assert.equal(answer.status(), 200, await answer.text());
  return page;
}

/** Opens a WebSocket in a page and says what came of it. */
const socketOf = (page, address) =>
  page.evaluate((to) => new Promise((resolve) => {
    const socket = new WebSocket(to);
    socket.onmessage = (event) => resolve(event.data);
    socket.onerror = () => resolve("refused");
  }), address.replace(/^http/, "ws") + "/socket");

/** Has a page post a form, into a frame or in its own place. */
const postForm = (page, action, target) =>
  page.evaluate(([to, where]) => {
    document.body.insertAdjacentHTML("beforeend", `<iframe name=frame></iframe><form method=post><input name=what value=form></form>`);
    const form = [...document.forms].at(-1);
    form.action = to;
    form.target = where;
    form.submit();
  }, [action, target]);

test("the sandbox's own page may do everything", async () => {
  const page = await visit(victim.link);
  assert.equal(await page.title(), "app");
  assert.equal(await page.evaluate(() => fetch("/act?own", { method: "POST", body: "fetch" }).then((r) => r.text())), "done");
  assert.equal(await socketOf(page, victim.origin), "hello");
  await Promise.all([page.waitForURL("**/act?form"), postForm(page, `${victim.origin}/act?form`, "_self")]);
  assert.equal(await page.textContent("body"), "done");
  assert.deepEqual((await victim.seen()).filter((line) => !line.startsWith("GET")), ["POST /act?own fetch", "SOCKET /socket", "POST /act?form what=form"]);
  assert.equal((await page.evaluate(() => document.cookie)), "", "scripts see the link");
});

test("another tenant's page may do nothing", async () => {
  await visit(victim.link);
  const page = await visit(attacker.link);
  const before = await victim.seen();
  const refused = [];
  page.on("response", (answer) => answer.url().startsWith(victim.origin) && refused.push(answer.status()));
  await Promise.all([page.waitForResponse(`${victim.origin}/act?stolen`), postForm(page, `${victim.origin}/act?stolen`, "frame")]);
  for (const mode of ["no-cors", "cors"]) {
    for (const method of ["POST", "GET"]) {
      await page.evaluate(([to, how, what]) => fetch(to, { method: what, mode: how, credentials: "include" }).then((r) => r.text(), () => ""),
        [`${victim.origin}/act?stolen`, mode, method]);
    }
  }
  assert.equal(await socketOf(page, victim.origin), "refused");
  await Promise.all([page.waitForURL(`${victim.origin}/act?stolen`), postForm(page, `${victim.origin}/act?stolen`, "_self")]);
  assert.deepEqual(await victim.seen(), before);
  assert.ok(refused.length >= 4, String(refused)); // what CORS hides from the page is not told here either
  // 403 says that the cookie came along, and was not enough.
  for (const status of refused) assert.equal(status, sameSite ? 403 : 401);
});

test("another tenant's page may lead the visitor there", async () => {
  await visit(victim.link);
  const page = await visit(attacker.link);
  await Promise.all([page.waitForURL(`${victim.origin}/led`), page.evaluate((to) => { location.href = to; }, `${victim.origin}/led`)]);
  // Over *.localhost, which are sites of their own, a navigation brings SameSite=Lax cookies as well.
  assert.equal(await page.title(), "app");
});

test("another tenant's cookies shut nobody out", async () => {
  await visit(victim.link);
  const page = await visit(attacker.link);
  await page.evaluate(([parent]) => {
    for (const name of ["bothy_link", "__Host-bothy_link"]) {
      for (const path of ["/", "/deep", "/deep/er"]) document.cookie = `${name}=tossed; Domain=${parent}; Path=${path}`;
    }
  }, [domain]);
  for (const cookie of [`bothy_link=x; Domain=${domain}; Path=/deep`, `=bothy_link=x; Domain=${domain}`, `other=x; Domain=${domain}`]) {
    await page.goto(`${attacker.origin}/toss?cookie=${encodeURIComponent(cookie)}`);
  }
  const kept = await context.cookies();
  assert.ok(!kept.some((c) => c.name === "other" && c.domain.startsWith(".")), "a cookie from inside has a domain");
  if (sameSite) assert.ok(kept.some((c) => c.value === "tossed" && c.domain === `.${domain}`), "nothing was tossed");
  const again = await visit(`${victim.origin}/deep/er/`);
  assert.equal(await again.title(), "app");
  assert.equal(await again.evaluate(() => fetch("/deep/er/act", { method: "POST" }).then((r) => r.status)), 200);
  await visit(attacker.origin);
});
