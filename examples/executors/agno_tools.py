"""Agno: a toolkit that runs an agent's code and keeps its files in a sandbox.

    with Sandbox.create() as sandbox:
        agent = Agent(model=…, tools=[BothyTools(sandbox)])
"""

from agno.tools import Toolkit
from bothy import FileNotFoundInSandboxError, Sandbox


class BothyTools(Toolkit):
    """Tools that work in a sandbox.

    Args:
        sandbox: Where they work. Its creator ends it.
        timeout_seconds: How long one call may take.
    """

    def __init__(self, sandbox: Sandbox, timeout_seconds: float = 60):
        self.sandbox, self.timeout_seconds = sandbox, timeout_seconds
        super().__init__(name="bothy", tools=[self.run_python, self.run_command, self.write_file, self.read_file])

    def run_python(self, code: str) -> str:
        """Run Python code. Variables stay from call to call; print what you want to see."""
        done = self.sandbox.run_code(code, "python", timeout_seconds=self.timeout_seconds)
        shown = "".join(r.get("text/plain", "") + "\n" for r in done.results)
        failed = done.error.traceback + "\n" + done.hint if done.error else ""
        return done.stdout + done.stderr + shown + failed

    def run_command(self, command: str) -> str:
        """Run a shell command and return its output and its exit code."""
        done = self.sandbox.exec(command, timeout_seconds=self.timeout_seconds, merge_stderr=True)
        return f"{done.stdout}{done.hint}\nexit code {done.exit_code}"

    def write_file(self, path: str, text: str) -> str:
        """Write a text file."""
        self.sandbox.files.write(path, text)
        return f"wrote {path}"

    def read_file(self, path: str) -> str:
        """Read a text file."""
        try:
            return self.sandbox.files.read(path)
        except FileNotFoundInSandboxError as e:
            return str(e)
