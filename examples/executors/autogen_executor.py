"""AutoGen: a code executor in a sandbox, for its agents and for PythonCodeExecutionTool.

    async with BothyCodeExecutor() as executor:
        tool = PythonCodeExecutionTool(executor)
"""

import asyncio

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from bothy import AsyncSandbox


class BothyCodeExecutor(CodeExecutor):
    """Runs blocks of code in a sandbox: those in a shell's language as commands.

    Args:
        timeout_seconds: How long one block may take.
        create: Arguments of `AsyncSandbox.create`, such as `template` and `network`.
    """

    def __init__(self, timeout_seconds: float = 60, **create):
        self.timeout_seconds, self.create = timeout_seconds, create
        self.sandbox: AsyncSandbox | None = None

    async def start(self):
        self.sandbox = await AsyncSandbox.create(**self.create)

    async def stop(self):
        if self.sandbox:
            await self.sandbox.terminate()
        self.sandbox = None

    async def restart(self):
        await self.stop()
        await self.start()

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        said = ""
        for block in code_blocks:
            task = asyncio.ensure_future(self._run(block))
            cancellation_token.link_future(task)  # a request that is given up ends what it began
            code, output = await task
            said += output
            if code:
                return CodeResult(code, said)
        return CodeResult(0, said)

    async def _run(self, block: CodeBlock) -> tuple[int, str]:
        if block.language in ("bash", "sh", "shell"):
            done = await self.sandbox.exec(block.code, timeout_seconds=self.timeout_seconds, merge_stderr=True)
            return done.exit_code, done.stdout + done.hint
        done = await self.sandbox.run_code(block.code, block.language, timeout_seconds=self.timeout_seconds)
        shown = "".join(r.get("text/plain", "") + "\n" for r in done.results)
        failed = done.error.traceback + "\n" + done.hint if done.error else ""
        return int(not done.ok), done.stdout + done.stderr + shown + failed
