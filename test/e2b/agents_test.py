"""The sandbox client of the OpenAI Agents SDK for E2B, against a server of this tree."""

import io
import unittest
from pathlib import Path

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType

import suite


class Agents(unittest.IsolatedAsyncioTestCase):
    async def session(self, **options):
        client = E2BSandboxClient()
        options = E2BSandboxClientOptions(**{"sandbox_type": E2BSandboxType.E2B, "timeout": 120, **options})
        session = await client.create(options=options)
        await session.start()
        return client, session

    async def test_session(self):
        client, session = await self.session()
        try:
            done = await session.exec("echo", "said", shell=False)
            self.assertEqual((done.exit_code, done.stdout.strip()), (0, b"said"))
            failed = await session.exec("exit 3")
            self.assertEqual(failed.exit_code, 3)
            await session.write(Path("a.txt"), io.BytesIO(b"content"))
            read = await session.read(Path("a.txt"))
            self.assertEqual(read.read(), b"content")
            self.assertTrue(await session.running())
        finally:
            await session.aclose()
            await client.delete(session)

    async def test_resume(self):
        client, session = await self.session(pause_on_exit=True)
        await session.write(Path("kept"), io.BytesIO(b"yes"))
        state = client.serialize_session_state(session.state)
        await session.aclose()
        again = await client.resume(client.deserialize_session_state(state))
        await again.start()
        try:
            read = await again.read(Path("kept"))
            self.assertEqual(read.read(), b"yes")
        finally:
            await client.delete(again)
            await again.aclose()


if __name__ == "__main__":
    suite.main()
