"""smolagents: a CodeAgent whose code runs in a sandbox.

    agent = CodeAgent(tools=[], model=…, executor=BothyExecutor(timeout_seconds=60))
"""

import base64
import io

import PIL.Image
from bothy import Sandbox
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentExecutionError


class BothyExecutor(RemotePythonExecutor):
    """Runs an agent's code in a sandbox of its own, which `cleanup` ends.

    Args:
        timeout_seconds: How long one piece of code may take.
        create: Arguments of `Sandbox.create`, such as `template` and `network`.
    """

    def __init__(self, timeout_seconds: float = 60, additional_imports=(), logger=None, **create):
        super().__init__(list(additional_imports), logger or AgentLogger(level=0))
        self.sandbox, self.timeout_seconds = Sandbox.create(**create), timeout_seconds
        try:
            self.installed_packages = self.install_packages(list(additional_imports))
        except BaseException:
            self.cleanup()
            raise

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        done = self.sandbox.run_code(code, timeout_seconds=self.timeout_seconds)
        if done.error and done.error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(self._deserialize_final_answer(done.error.value), done.stdout, is_final_answer=True)
        if done.error:
            raise AgentExecutionError(f"{done.stdout}\n{done.error.traceback}\n{done.hint}", self.logger)
        shown = done.results[-1] if done.results else {}
        if "image/png" in shown:
            image = PIL.Image.open(io.BytesIO(base64.b64decode(shown["image/png"])))
            return CodeOutput(image, done.stdout, is_final_answer=False)
        return CodeOutput(shown.get("text/plain"), done.stdout, is_final_answer=False)

    def cleanup(self):
        self.sandbox.terminate()
