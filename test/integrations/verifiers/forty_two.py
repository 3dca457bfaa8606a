"""Tasks whose answer is a file."""

from collections.abc import Iterable

import verifiers.v1 as vf
from verifiers.v1.runtimes import Runtime
from verifiers.v1.trace import Trace

__all__ = ["FortyTwo"]


class Data(vf.TaskData):
    number: int


class WriteIt(vf.Task[Data]):
    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        await runtime.write("größe 1/question.bin", bytes(range(256)))

    async def validate(self, runtime: Runtime) -> bool:
        n = self.data.number
        ran = await runtime.run(["sh", "-c", f'echo $((2 * {n})) >answer.txt; cat "größe 1/question.bin" | wc -c'], {})
        return (ran.exit_code, ran.stdout, await runtime.read("answer.txt")) == (0, "256\n", b"%d\n" % (2 * n))

    @vf.reward
    async def right(self, runtime: Runtime) -> float:
        ran = await runtime.run(["cat", "answer.txt"], {})
        return float(ran.stdout == f"{2 * self.data.number}\n")


class FortyTwo(vf.Taskset[WriteIt]):
    def load(self) -> Iterable[WriteIt]:
        for n in range(4):
            yield WriteIt(Data(name=f"twice {n}", prompt=f"Write two times {n} into answer.txt.", number=n), self.config.task)
