import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { follow } from "../dist/process.js";

const bytes = (text) => new TextEncoder().encode(text);
const text = ({ value }) => new TextDecoder().decode(value);

/** A process whose output is what a test says, and which notes from where it was read. */
function pretend() {
  const events = [];
  const from = [];
  let wake = () => {};
  const add = (event) => {
    events.push(event);
    wake();
  };
  let offset = 0;
  return {
    from,
    write(stream, data) {
      add({ stream, bytes: bytes(data), offset, isFinal: false });
      offset += data.length;
    },
    end: (exitCode) => add({ isFinal: true, exitCode }),
    process: {
      pid: 7,
      kill: async () => {},
      async *output(next, { signal }) {
        from.push(next);
        for (let n = events.findIndex((event) => event.isFinal || event.offset >= next); ; n++) {
          while (n < 0 || n >= events.length) {
            await new Promise((resolve, reject) => {
              wake = resolve;
              if (signal.aborted) reject(signal.reason);
              signal.addEventListener("abort", () => reject(signal.reason));
            });
            if (n < 0) n = events.length - 1;
          }
          yield events[n];
          if (events[n].isFinal) return;
        }
      },
    },
  };
}

test("nothing is connected before somebody reads, or after, and the next read goes on where it was", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { process, write, end, from } = pretend();
  const over = new AbortController();
  const { stdout, stderr, wait } = follow(process, over.signal);
  await new Promise(setImmediate);
  assert.deepEqual(from, []);
  write("stdout", "one");
  write("stderr", "bad");
  const reader = stdout.getReader();
  assert.equal(text(await reader.read()), "one");
  mock.timers.tick(250);
  await new Promise(setImmediate);
  write("stdout", "two");
  assert.equal(text(await reader.read()), "two");
  assert.equal(from.length, 2);
  assert.ok(from[1] > 0 && from[1] <= 6, `read again from ${from[1]}`);
  end(3);
  assert.deepEqual(await wait(), { exitCode: 3 });
  assert.equal((await reader.read()).done, true);
  const errors = stderr.getReader();
  assert.equal(text(await errors.read()), "bad");
  assert.equal((await errors.read()).done, true);
  mock.timers.reset();
});

test("a session that is over lets go of those who wait", async () => {
  const { process } = pretend();
  const over = new AbortController();
  const { stdout, wait } = follow(process, over.signal);
  const waiting = wait();
  const read = stdout.getReader().read();
  over.abort(new Error("over"));
  await assert.rejects(waiting, /over/);
  await assert.rejects(read, /over/);
});
