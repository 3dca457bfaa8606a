// Computes in a sandbox by ComputeSDK, and shows the output as it comes.
import { createCompute } from "@computesdk/provider";
import { bothy } from "bothy-computesdk";

const compute = createCompute({ defaultProvider: bothy() });
const sandbox = await compute.sandbox.create({ runtime: "python", timeout: 600_000 });
try {
  await sandbox.filesystem.writeFile("square.py", "print(sum(n * n for n in range(10)))");
  await sandbox.runCommand("python3 square.py", { timeout: 60_000, onStdout: (text) => process.stdout.write(text) });
} finally {
  await sandbox.destroy();
}
