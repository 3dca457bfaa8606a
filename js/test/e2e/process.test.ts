import assert from "node:assert/strict";
import { createServer as createProxy, connect, type AddressInfo, type Socket } from "node:net";
import { test } from "node:test";
import { Bothy, Sandbox } from "bothy";
import { template, until } from "./setup.js";

test("a process runs in the background, reads what it is given, and ends", async () => {
  await using sbx = await Sandbox.create({ template });
  const process = await sbx.spawn("while read -r line; do echo got:$line; done; echo bye; exit 4");
  await process.write("one\n");
  await process.write(Buffer.from("zwölf\n"));
  await process.closeStdin();
  const result = await process.wait();
  assert.equal(result.stdout, "got:one\ngot:zwölf\nbye\n");
  assert.equal(result.exitCode, 4);
  assert.equal(result.truncated, false);
});

test("a process is listed, found again by its id, signalled and killed", async () => {
  await using sbx = await Sandbox.create({ template });
  const first = await sbx.spawn("trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.02; done");
  for await (const event of first) if (!event.isFinal && event.data.includes("ready")) break;
  const [info] = (await sbx.processes()).filter(({ pid }) => pid === first.pid);
  assert.equal(info?.running, true);
  assert.ok((info?.outputEnd ?? 0) >= 6);

  const found = (await Sandbox.get(sbx.id)).process(first.pid);
  await found.signal("SIGUSR1");
  const result = await found.wait();
  assert.deepEqual([result.exitCode, result.stdout], [7, "ready\ncaught\n"]);

  const second = await sbx.spawn(["sleep", "1000"]);
  await second.kill();
  assert.equal((await second.wait()).exitCode, 128 + 9);
  await assert.rejects(sbx.process(999_999).wait(), { code: "process_not_found" });
});

/** A network that can be cut: passes bytes on to the server and drops its connections when told. */
async function shakyNetwork(target: URL): Promise<{ url: string; cut: () => void; close: () => void; connections: () => number }> {
  const open = new Set<Socket>();
  let count = 0;
  const proxy = createProxy((near) => {
    count++;
    const far = connect(Number(target.port), target.hostname);
    for (const [socket, other] of [[near, far], [far, near]] as const) {
      open.add(socket);
      socket.on("error", () => undefined).on("close", () => {
        open.delete(socket);
        other.destroy();
      });
    }
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const cut = (): void => open.forEach((socket) => socket.destroy());
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    cut,
    close: () => (cut(), proxy.close()),
    connections: () => count,
  };
}

test("a network that breaks again and again loses and doubles nothing", async () => {
  const network = await shakyNetwork(new URL(process.env.BOTHY_URL ?? ""));
  await using sbx = await Sandbox.create({ template });
  const command = await sbx.spawn("for i in $(seq 1 300); do echo line $i; echo err $i >&2; sleep 0.01; done");
  const follower = (await new Bothy({ url: network.url }).sandboxes.get(sbx.id)).process(command.pid);
  let stdout = "";
  let position = 0;
  let pieces = 0;
  try {
    for await (const event of follower) {
      if (event.isFinal) {
        assert.equal(event.exitCode, 0);
        continue;
      }
      assert.equal(event.offset, position);
      position += event.bytes.length;
      if (event.stream === "stdout") stdout += event.data;
      if (++pieces % 40 === 0) network.cut();
    }
  } finally {
    network.close();
  }
  assert.equal(stdout, Array.from({ length: 300 }, (_, i) => `line ${i + 1}\n`).join(""));
  assert.ok(network.connections() > 3, "the network was really cut");
});

test("a lot of output arrives whole", async () => {
  await using sbx = await Sandbox.create({ template });
  let bytes = 0;
  for await (const event of sbx.execStream("head -c 20000000 /dev/zero | tr '\\0' x")) if (!event.isFinal) bytes += event.bytes.length;
  assert.equal(bytes, 20_000_000);
});

test("a terminal is a real one", async () => {
  await using sbx = await Sandbox.create({ template });
  await using terminal = await sbx.terminal({ cols: 100, rows: 30, env: { PS1: "$ " } });
  assert.ok(terminal.pid > 0);
  await terminal.resize(120, 40);
  await terminal.write("stty size; tty; echo zwölf $((6*7)); exit 5\n");
  const chunks: Uint8Array[] = [];
  for await (const chunk of terminal) chunks.push(chunk);
  const screen = Buffer.concat(chunks).toString();
  assert.match(screen, /40 120\r\n/);
  assert.match(screen, /\/dev\/pts\/\d+\r\n/);
  assert.match(screen, /zwölf 42\r\n/);
  assert.equal(terminal.exitCode, 5);
});

test("a terminal runs a command of its own, and hanging up ends it", async () => {
  await using sbx = await Sandbox.create({ template });
  assert.equal(await (await sbx.terminal({ command: ["sh", "-c", "exit 9"] })).wait(), 9);
  const terminal = await sbx.terminal({ command: "exec sleep 1003" });
  const alive = async (): Promise<boolean> => (await sbx.exec(["pgrep", "-f", "^sleep 1003$"])).ok;
  await until("the command runs", alive);
  await terminal.close();
  await until("the command is gone", async () => !(await alive()));
});

test("a terminal that is not there cannot be joined", async () => {
  await using sbx = await Sandbox.create({ template });
  await assert.rejects(sbx.terminal({ process: 999999, from: 10 }), { code: "process_not_found" });
});
