"""Plays the shared scenarios with this SDK: one step from each line, one answer to each line.

Usage: ``python tests/vectors.py blocking|asynchronous``; see test/vectors of the repository.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from asynchronous.player import AsyncPlayer
from blocking.player import Player

from bothy import AsyncClient, BothyError, Client


def say(answer: dict[str, Any]) -> None:
    """Write a line."""
    print(json.dumps(answer, default=str), flush=True)


def heard(text: str) -> None:
    """Tell what arrives while a command runs."""
    say({"text": text})


def failure(error: BothyError) -> dict[str, Any]:
    """Return an error as scenarios have it."""
    return {"error": {"code": error.code, "hint": error.hint, "detail": error.detail}}


def blocking() -> None:
    """Play with the blocking SDK."""
    with Client() as client:
        player = Player(client, heard)
        for line in sys.stdin:
            try:
                say({"ok": player.play(json.loads(line))})
            except BothyError as error:
                say(failure(error))


async def asynchronous() -> None:
    """Play with the asynchronous SDK."""
    async with AsyncClient() as client:
        player = AsyncPlayer(client, heard)
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                say({"ok": await player.play(json.loads(line))})
            except BothyError as error:
                say(failure(error))


if __name__ == "__main__":
    blocking() if sys.argv[1] == "blocking" else asyncio.run(asynchronous())
