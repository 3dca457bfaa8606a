// A harness agent that works in a sandbox. With claudeCode() of @ai-sdk/harness-claude-code, or another
// harness, in the place of the scripted one it decides itself what to do.
import { HarnessAgent } from "@ai-sdk/harness/agent";
import { bothySandbox } from "bothy-ai-sdk-harness";
import { scripted } from "./scripted.js";

const agent = new HarnessAgent({
  harness: scripted({ commands: ["echo 'console.log([...Array(10).keys()].reduce((sum, n) => sum + n * n))' >square.js", "node square.js"], say: "The sum is {1}." }),
  sandbox: bothySandbox({ template: "node-22" }),
});

const session = await agent.createSession();
try {
  const { text } = await agent.generate({ session, prompt: "What is the sum of the first ten squares, from 0 on? Compute it." });
  console.log(text);
} finally {
  await session.destroy();
}
