"""Work for an environment with the official SDK: worker.py URL ENVIRONMENT FOLDER."""

import asyncio
import os
import sys

from anthropic import AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker


async def main(url: str, environment: str, folder: str) -> None:
    client = AsyncAnthropic(base_url=url, api_key="unused")
    await EnvironmentWorker(
        client,
        environment_id=environment,
        environment_key=os.environ["ANTHROPIC_ENVIRONMENT_KEY"],
        workdir=folder,
        max_idle=1,
    ).run()


asyncio.run(main(*sys.argv[1:]))
