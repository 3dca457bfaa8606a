"""LlamaIndex: tools that run an agent's code and commands in a sandbox.

    with Sandbox.create() as sandbox:
        agent = ReActAgent(tools=sandbox_tools(sandbox), llm=…)
"""

from bothy import Sandbox
from llama_index.core.tools import FunctionTool


def sandbox_tools(sandbox: Sandbox, timeout_seconds: float = 60) -> list[FunctionTool]:
    """Return tools that work in a sandbox, each call for at most so many seconds."""

    def run_python(code: str) -> str:
        """Run Python code. Variables stay from call to call; print what you want to see."""
        done = sandbox.run_code(code, "python", timeout_seconds=timeout_seconds)
        shown = "".join(r.get("text/plain", "") + "\n" for r in done.results)
        failed = done.error.traceback + "\n" + done.hint if done.error else ""
        return done.stdout + done.stderr + shown + failed

    def run_command(command: str) -> str:
        """Run a shell command and return its output and its exit code."""
        done = sandbox.exec(command, timeout_seconds=timeout_seconds, merge_stderr=True)
        return f"{done.stdout}{done.hint}\nexit code {done.exit_code}"

    return [FunctionTool.from_defaults(fn=run_python), FunctionTool.from_defaults(fn=run_command)]
