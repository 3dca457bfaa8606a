"""Rollouts of one task: forks of a prepared sandbox, their rewards and traces.

    python rollouts.py [COUNT [FOLDER]]

Replace ``policy`` by your model. Each rollout is a copy of the same sandbox, with the same
memory and files, and writes what it did to FOLDER/traces.jsonl. A rollout that the
infrastructure broke has no reward: it says nothing about the policy.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from bothy import AsyncClient, AsyncSandbox, BothyError

TEMPLATE = "python-3.12-bare"
STEPS = 4
FORKS = 16

TASK = "Write the sum of the numbers in numbers.txt to answer.txt."
SETUP = "seq 1 100 > numbers.txt"
CHECK = 'test "$(cat answer.txt 2>/dev/null)" = 5050'

ACTIONS = (
    "head -n 3 numbers.txt",
    "wc -l < numbers.txt > answer.txt",
    "awk '{ s += $1 } END { print s }' numbers.txt > answer.txt",
)


def policy(chance: random.Random, trace: list[dict[str, Any]]) -> str:
    """Choose the next command, as a model would from the trace so far."""
    return chance.choice(ACTIONS)


async def rollout(sandbox: AsyncSandbox, seed: int) -> dict[str, Any]:
    """Play one episode and return its trace."""
    chance, trace = random.Random(seed), list[dict[str, Any]]()
    episode: dict[str, Any] = {"seed": seed, "sandbox": sandbox.id, "trace": trace}
    try:
        for _ in range(STEPS):
            command = policy(chance, trace)
            result = await sandbox.exec(command, timeout_seconds=60)
            said = result.stdout + result.stderr
            trace.append({"command": command, "exit_code": result.exit_code, "output": said})
        check = await sandbox.exec(CHECK, timeout_seconds=60)
        episode["reward"] = 1.0 if check.exit_code == 0 else 0.0
    except BothyError as error:
        episode |= {"error": str(error), "reward": None if error.infrastructure else 0.0}
    return episode


async def main(count: int, folder: Path) -> None:
    """Make a group of rollouts and report on it."""
    folder.mkdir(parents=True, exist_ok=True)
    async with (
        AsyncClient() as client,
        AsyncSandbox.create(TEMPLATE, metadata={"rollouts": "origin"}, client=client) as origin,
    ):
        (await origin.exec(SETUP)).check()
        label = {"rollouts": origin.id}
        episodes: list[dict[str, Any]] = []
        try:
            while len(episodes) < count:
                n = min(FORKS, count - len(episodes))
                copies = await origin.fork(n, metadata=label, timeout_seconds=600)
                seeds = range(len(episodes), len(episodes) + n)
                episodes += await asyncio.gather(*map(rollout, copies, seeds))
                await AsyncSandbox.terminate_many(copies, client=client)
        finally:
            await AsyncSandbox.terminate_many(metadata=label, client=client)
    with (folder / "traces.jsonl").open("w") as file:
        for episode in episodes:
            file.write(json.dumps(episode) + "\n")
    rewards = [e["reward"] for e in episodes if e["reward"] is not None]
    lost = len(episodes) - len(rewards)
    print(f"{len(episodes)} rollouts, mean reward {mean(rewards or [0.0]):.2f}, {lost} without one")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    asyncio.run(main(int(arguments[0]) if arguments else 64, Path((arguments[1:] or ["."])[0])))
