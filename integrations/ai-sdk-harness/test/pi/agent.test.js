// A real coding agent with a model that follows a script. Wants @ai-sdk/harness-pi, which test/integrations/harness installs.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { HarnessAgent } from "@ai-sdk/harness/agent";
import { createPi } from "@ai-sdk/harness-pi";
import { bothySandbox } from "bothy-ai-sdk-harness";

/** Answers as Anthropic's messages API does, turn by turn, and notes what it was asked. */
async function scriptedModel(...turns) {
  const asked = [];
  const server = createServer(async (request, response) => {
    asked.push(JSON.parse(Buffer.concat(await Array.fromAsync(request)).toString()));
    response.setHeader("Content-Type", "text/event-stream");
    for (const event of eventsOf(turns.shift())) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    response.end();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return { asked, url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

function eventsOf(turn) {
  const says = typeof turn === "string";
  const message = { id: "msg_1", type: "message", role: "assistant", model: "scripted", content: [], stop_reason: null, usage: { input_tokens: 1, output_tokens: 1 } };
  return [
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: says ? { type: "text", text: "" } : { type: "tool_use", id: turn.id, name: turn.name, input: {} } },
    { type: "content_block_delta", index: 0, delta: says ? { type: "text_delta", text: turn } : { type: "input_json_delta", partial_json: JSON.stringify(turn.input) } },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: says ? "end_turn" : "tool_use" }, usage: { output_tokens: 1 } },
    { type: "message_stop" },
  ];
}

test("Pi writes a file in the sandbox, runs it, and sees what it says", async () => {
  const model = await scriptedModel(
    { id: "toolu_1", name: "write", input: { file_path: "square.js", content: "console.log([...Array(10).keys()].reduce((sum, n) => sum + n * n))" } },
    { id: "toolu_2", name: "bash", input: { command: "node square.js; hostname" } },
    "The sum is 285.",
  );
  Object.assign(process.env, { ANTHROPIC_API_KEY: "not-a-key", ANTHROPIC_BASE_URL: model.url });
  const agent = new HarnessAgent({ harness: createPi({}), model: "anthropic/claude-sonnet-4-5", sandbox: bothySandbox() });
  const sessionId = `pi-${crypto.randomUUID()}`;
  const session = await agent.createSession({ sessionId });
  try {
    const { text } = await agent.generate({ session, prompt: "What is the sum of the first ten squares, from 0 on?" });
    assert.equal(text, "The sum is 285.");
    const [result] = model.asked.at(-1).messages.at(-1).content;
    assert.match(JSON.stringify(result.content), /285\\nsbx/);
  } finally {
    await session.destroy();
    model.close();
  }
});
