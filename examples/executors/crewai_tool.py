"""CrewAI: a tool that runs an agent's code in a sandbox.

    with Sandbox.create() as sandbox:
        agent = Agent(role=…, goal=…, backstory=…, llm=…, tools=[RunPython(sandbox=sandbox)])
"""

from bothy import Sandbox
from crewai.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field


class Code(BaseModel):
    code: str = Field(description="Python code. Variables stay from call to call; print what you want to see.")


class RunPython(BaseTool):
    """Runs Python where the variables of earlier calls still are.

    Args:
        sandbox: Where it runs. Its creator ends it.
        timeout_seconds: How long one call may take.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: str = "run_python"
    description: str = "Run Python code on a computer of your own."
    args_schema: type[BaseModel] = Code
    sandbox: Sandbox = Field(exclude=True)
    timeout_seconds: float = 60

    def _run(self, code: str) -> str:
        done = self.sandbox.run_code(code, "python", timeout_seconds=self.timeout_seconds)
        shown = "".join(r.get("text/plain", "") + "\n" for r in done.results)
        failed = done.error.traceback + "\n" + done.hint if done.error else ""
        return done.stdout + done.stderr + shown + failed
