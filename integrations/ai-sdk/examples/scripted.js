// A model that costs nothing: it says what a script tells it to, and notes what it was asked.
import * as mocks from "ai/test";

const Mock = mocks.MockLanguageModelV4 ?? mocks.MockLanguageModelV3;
const usage = { inputTokens: { total: 1, noCache: 1 }, outputTokens: { total: 1, text: 1 } };

/** A turn in which the model calls a tool. */
export function call(toolName, input) {
  return { content: [{ type: "tool-call", toolCallId: `call-${toolName}-${Math.random()}`, toolName, input: JSON.stringify(input) }], finishReason: { unified: "tool-calls" } };
}

/** A turn in which the model answers. */
export function say(text) {
  return { content: [{ type: "text", text }], finishReason: { unified: "stop" } };
}

/** A model that takes these turns one after the other; a function makes its turn from the prompt. */
export function scripted(...turns) {
  return new Mock({
    doGenerate: async ({ prompt }) => {
      const turn = turns.shift();
      return { usage, warnings: [], ...(typeof turn === "function" ? turn(prompt) : turn) };
    },
  });
}
