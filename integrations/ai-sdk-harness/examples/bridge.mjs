// Runs in the sandbox, where a coding agent would: it does what the script of a turn says, and
// tells the harness about it over the framework's own bridge.
import { execFile } from "node:child_process";
import { runBridge } from "./runtime.mjs";

const run = (command, cwd) =>
  new Promise((done) => execFile("bash", ["-c", command], { cwd }, (error, stdout, stderr) => done({ exitCode: error?.code ?? 0, stdout, stderr })));

await runBridge({
  bridgeType: "scripted",
  bridgeStateDir: process.argv[2],
  onStart: async ({ script, cwd }, turn) => {
    turn.emit({ type: "stream-start" });
    const outputs = [];
    for (const [n, command] of script.commands.entries()) {
      const call = { toolCallId: `call-${n}`, toolName: "bash" };
      turn.emit({ type: "tool-call", ...call, input: JSON.stringify({ command }), providerExecuted: true });
      const result = await run(command, cwd);
      outputs.push(result.stdout.trim());
      turn.emit({ type: "tool-result", ...call, result });
    }
    const text = script.say.replace(/\{(\d+)\}/g, (_, n) => outputs[n]);
    turn.emit({ type: "text-start", id: "1" });
    turn.emit({ type: "text-delta", id: "1", delta: text });
    turn.emit({ type: "text-end", id: "1" });
    const finishReason = { unified: "stop", raw: "stop" };
    const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
    turn.emit({ type: "finish-step", finishReason, usage });
    turn.emit({ type: "finish", finishReason, totalUsage: usage });
  },
});
