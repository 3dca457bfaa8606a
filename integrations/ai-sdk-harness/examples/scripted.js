// A harness whose agent costs nothing: it does what a script tells it to. Its bridge runs in the
// sandbox and is reached over a WebSocket, as those of real agents are.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { HARNESS_V1_BUILTIN_TOOLS, harnessV1BridgeOutboundMessageSchema } from "@ai-sdk/harness";
import { createBridgeToken, SandboxChannel, waitForBridgeReady, withBridgeToken } from "@ai-sdk/harness/utils";
import WebSocket from "ws";

const folder = "/workspace/.scripted";
const here = dirname(fileURLToPath(import.meta.url));
const ws = dirname(createRequire(import.meta.url).resolve("ws/package.json"));
const wsFiles = ["package.json", "index.js", "wrapper.mjs"].concat(
  ["buffer-util", "constants", "event-target", "extension", "limiter", "permessage-deflate", "receiver", "sender", "stream", "subprotocol", "validation", "websocket-server", "websocket"].map((name) => `lib/${name}.js`),
);

/** What the sandbox needs: the bridge, the framework's part of it, and the package that it imports. */
function bootstrapFiles() {
  const file = (path, from) => ({ path: `${folder}/${path}`, content: readFileSync(from, "utf8") });
  return [
    file("bridge.mjs", join(here, "bridge.mjs")),
    file("runtime.mjs", fileURLToPath(import.meta.resolve("@ai-sdk/harness/bridge"))),
    ...wsFiles.map((name) => file(`node_modules/ws/${name}`, join(ws, name))),
  ];
}

/** Returns an agent that takes these turns one after the other: `{ commands: ["ls"], say: "It has {0}." }`. */
export function scripted(...turns) {
  return {
    specificationVersion: "harness-v1",
    harnessId: "scripted",
    builtinTools: { bash: HARNESS_V1_BUILTIN_TOOLS.bash },
    getBootstrap: async () => ({ harnessId: "scripted", bootstrapDir: folder, files: bootstrapFiles(), commands: [{ command: "node --version >>versions" }] }),
    doStart: async ({ sessionId, sessionWorkDir: cwd, sandboxSession, resumeFrom, abortSignal }) => {
      const bridge = resumeFrom?.data?.bridge ?? (await startBridge(sandboxSession, sessionId, abortSignal));
      const channel = new SandboxChannel({
        outboundSchema: harnessV1BridgeOutboundMessageSchema,
        initialLastSeenEventId: bridge.lastSeenEventId ?? 0,
        connect: async ({ abortSignal: signal }) => {
          const endpoint = withBridgeToken({ endpoint: await sandboxSession.getPortEndpoint({ port: bridge.port, protocol: "ws" }), token: bridge.token });
          return connected(new WebSocket(endpoint.url, { headers: endpoint.headers }), signal);
        },
      });
      await channel.open({ resume: resumeFrom !== undefined });
      const state = (data) => ({ type: "resume-session", harnessId: "scripted", specificationVersion: "harness-v1", data });
      return {
        sessionId,
        isResume: resumeFrom !== undefined,
        doPromptTurn: async ({ emit }) => {
          const done = new Promise((resolve, reject) => {
            for (const type of ["stream-start", "tool-call", "tool-result", "text-start", "text-delta", "text-end", "finish-step", "finish", "error"]) {
              channel.on(type, (event) => {
                emit(event);
                if (type === "finish") resolve();
                if (type === "error") reject(new Error(String(event.error?.message ?? event.error)));
              });
            }
          });
          channel.send({ type: "start", prompt: "", script: turns.shift(), cwd });
          return { submitToolResult: async () => {}, done };
        },
        doContinueTurn: async () => Promise.reject(new Error("a script has no unfinished turns")),
        doCompact: async () => Promise.reject(new Error("a script has no context")),
        doSuspendTurn: async () => Promise.reject(new Error("a script has no unfinished turns")),
        doDetach: async () => {
          const lastSeenEventId = await channel.suspend();
          return state({ bridge: { ...bridge, lastSeenEventId } });
        },
        doStop: async () => {
          channel.beginClose();
          channel.send({ type: "stop" });
          return state({});
        },
        doDestroy: async () => channel.close(),
      };
    },
  };
}

async function startBridge(sandbox, sessionId, abortSignal) {
  const [port] = sandbox.ports;
  const token = createBridgeToken();
  const bridgeStateDir = `/tmp/scripted-${sessionId}`;
  const proc = await sandbox.spawn({
    command: `exec node ${folder}/bridge.mjs ${bridgeStateDir}`,
    env: { BRIDGE_WS_PORT: String(port), BRIDGE_CHANNEL_TOKEN: token },
  });
  await waitForBridgeReady({ proc, sandbox, bridgeStateDir, bridgeType: "scripted", timeoutMs: 60_000, abortSignal });
  return { port, token };
}

/** Waits for the bridge's first words. */
function connected(socket, signal) {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => socket.terminate(), { once: true });
    socket.once("error", reject);
    socket.once("close", () => reject(new Error("the bridge closed the connection")));
    socket.once("message", () => resolve(socket));
  });
}
