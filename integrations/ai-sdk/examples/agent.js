// An agent that computes in a sandbox. With a model of your own instead of the scripted one it
// decides itself what to do.
import { generateText, stepCountIs } from "ai";
import { Sandbox } from "bothy";
import { bothyTools } from "bothy-ai-sdk";
import { call, say, scripted } from "./scripted.js";

const model = scripted(
  call("writeFile", { path: "square.py", content: "print(sum(n * n for n in range(10)))" }),
  call("bash", { command: "python3 square.py" }),
  (prompt) => say(`The sum is ${prompt.at(-1).content[0].output.value.stdout.trim()}.`),
);

const sandbox = await Sandbox.create({ template: "python-3.12" });
try {
  const { text } = await generateText({
    model,
    prompt: "What is the sum of the first ten squares, from 0 on? Compute it.",
    tools: bothyTools(sandbox),
    stopWhen: stepCountIs(20),
  });
  console.log(text);
} finally {
  await sandbox.terminate();
}
