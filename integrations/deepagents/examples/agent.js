// A deep agent that works in a sandbox. With a model of your own instead of the scripted one it
// decides itself what to do.
import { AIMessage, ToolMessage } from "@langchain/core/messages";
import { fakeModel } from "@langchain/core/testing";
import { Sandbox } from "bothy";
import { BothySandbox } from "bothy-deepagents";
import { createDeepAgent } from "deepagents";

const model = fakeModel()
  .respondWithTools([{ name: "write_file", args: { file_path: "/workspace/square.py", content: "print(sum(n * n for n in range(10)))" } }])
  .respondWithTools([{ name: "execute", args: { command: "python3 square.py" } }])
  .respond((messages) => new AIMessage(`The sum is ${messages.findLast((m) => m instanceof ToolMessage).content.match(/\d+/)[0]}.`));

const sandbox = await Sandbox.create({ template: "python-3.12" });
try {
  const agent = createDeepAgent({ model, backend: new BothySandbox(sandbox) });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "What is the sum of the first ten squares, from 0 on?" }] });
  console.log(messages.at(-1).content);
} finally {
  await sandbox.terminate();
}
