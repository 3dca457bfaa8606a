"""What E2B's quick starts begin with, one program each and in both forms, against a server of this tree."""

import asyncio
import base64
import functools
import inspect
import io
import os
import tempfile
import unittest
import urllib.request
import uuid
import zipfile

from e2b import AsyncTemplate, SandboxQuery, Template, wait_for_timeout
from e2b_code_interpreter import AsyncSandbox, Sandbox

import suite


async def did(value):
    """Return what a call gives, in either form of it."""
    return await value if inspect.isawaitable(value) else value


def both(test):
    """Run a test with each form of the SDK."""

    @functools.wraps(test)
    async def run(self):
        for form in (Sandbox, AsyncSandbox):
            with self.subTest(form.__name__):
                await test(self, form)

    return run


def png(image):
    return base64.b64decode(image).startswith(b"\x89PNG\r\n")


def wheel(name, code):
    """Return a package of one module, as pip installs it."""
    info, out = f"{name}-1.dist-info/", io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(f"{name}.py", code)
        z.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "".join(f"{n},,\n" for n in (f"{name}.py", info + "METADATA", info + "WHEEL", info + "RECORD")))
    return out.getvalue()


class QuickStarts(unittest.IsolatedAsyncioTestCase):
    async def sandbox(self, form, **options):
        sandbox = await did(form.create(**{"timeout": 120, **options}))

        async def end():
            await did(sandbox.kill())

        self.addAsyncCleanup(end)
        return sandbox

    @both
    async def test_the_first_sandbox(self, form):
        sandbox = await self.sandbox(form)
        execution = await did(sandbox.run_code("print('hello world')"))
        self.assertEqual(execution.logs.stdout, ["hello world\n"])
        self.assertIn("home", [entry.name for entry in await did(sandbox.files.list("/"))])

    @both
    async def test_a_tool_of_a_model(self, form):
        """A model writes code, sees what it did wrong, and writes it again."""
        sandbox = await self.sandbox(form)
        messages = [{"role": "user", "content": "What is the total of the orders?"}]
        for code in ("orders['total']", "orders = {'total': 42}\norders['total']"):
            execution = await did(sandbox.run_code(code))
            said = execution.error.traceback if execution.error else execution.text
            messages.append({"role": "tool", "content": said})
        self.assertIn("NameError", messages[1]["content"])
        self.assertEqual(messages[2]["content"], "42")

    async def test_blocks_end_sandboxes(self):
        with Sandbox.create(timeout=60) as one:
            self.assertEqual(one.run_code("6 * 7").text, "42")
        async with await AsyncSandbox.create(timeout=60) as two:
            self.assertEqual((await two.run_code("6 * 7")).text, "42")
        self.assertFalse(one.is_running())
        self.assertFalse(await two.is_running())

    @both
    async def test_files_up_and_down(self, form):
        sandbox = await self.sandbox(form)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("one.txt", b"one"), ("two.bin", bytes(range(256)))):
                path = os.path.join(folder, name)
                with open(path, "wb") as f:
                    f.write(content)
                with open(path, "rb") as f:
                    await did(sandbox.files.write("/home/user/up/" + name, f))
                self.assertEqual(bytes(await did(sandbox.files.read("/home/user/up/" + name, format="bytes"))), content)
        await did(sandbox.files.write_files([{"path": "/home/user/a", "data": "a"}, {"path": "/home/user/b", "data": b"b"}]))
        self.assertEqual([await did(sandbox.files.read("/home/user/" + name)) for name in "ab"], ["a", "b"])

    @both
    async def test_files_by_signed_addresses(self, form):
        sandbox = await self.sandbox(form)
        url = await did(sandbox.upload_url("/home/user/sent", use_signature_expiration=60))
        boundary = "a-boundary"
        body = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="sent"\r\n\r\nby hand\r\n--{boundary}--\r\n'.encode()
        request = urllib.request.Request(url, body, {"Content-Type": "multipart/form-data; boundary=" + boundary})
        await asyncio.to_thread(lambda: urllib.request.urlopen(request).close())
        address = await did(sandbox.download_url("/home/user/sent", use_signature_expiration=60))
        self.assertEqual(await asyncio.to_thread(lambda: urllib.request.urlopen(address).read()), b"by hand")

    @both
    async def test_a_folder_is_watched(self, form):
        sandbox = await self.sandbox(form)
        await did(sandbox.files.make_dir("/home/user/watched"))
        seen = asyncio.Event()
        if form is AsyncSandbox:
            handle = await sandbox.files.watch_dir("/home/user/watched", on_event=lambda _: seen.set())
        else:
            handle = sandbox.files.watch_dir("/home/user/watched")
        await did(sandbox.files.write("/home/user/watched/new", "x"))
        if form is AsyncSandbox:
            await asyncio.wait_for(seen.wait(), 30)
        else:
            for _ in range(300):
                if handle.get_new_events():
                    break
                await asyncio.sleep(0.1)
            else:
                self.fail("nothing was seen")
        await did(handle.stop())

    @both
    async def test_a_package_at_run_time(self, form):
        sandbox = await self.sandbox(form)
        await did(sandbox.files.write("/home/user/shout-1-py3-none-any.whl", wheel("shout", "def shout(text):\n    return text.upper() + '!'\n")))
        await did(sandbox.commands.run("pip install --no-index ./shout-1-py3-none-any.whl", timeout=60))
        self.assertEqual((await did(sandbox.run_code("from shout import shout\nshout('hey')"))).text, "HEY!")

    @both
    async def test_analysis_of_data(self, form):
        sandbox = await self.sandbox(form)
        await did(sandbox.files.write("dataset.csv", "year,films\n2022,3\n2023,5\n2024,8\n"))
        execution = await did(sandbox.run_code(
            "import pandas as pd, matplotlib.pyplot as plt\n"
            "table = pd.read_csv('dataset.csv')\n"
            "plt.plot(table.year, table.films)\nplt.title('Films a year')\nplt.show()"
        ))
        self.assertIsNone(execution.error)
        (result,) = [r for r in execution.results if r.png]
        self.assertTrue(png(result.png))
        self.assertEqual((result.chart.title, result.chart.type.value), ("Films a year", "line"))

    @both
    async def test_other_languages(self, form):
        sandbox = await self.sandbox(form)
        self.assertEqual((await did(sandbox.run_code("echo $((6 * 7))", language="bash"))).logs.stdout, ["42\n"])
        context = await did(sandbox.create_code_context(cwd="/tmp"))
        self.assertEqual((await did(sandbox.run_code("import os; os.getcwd()", context=context))).text, "/tmp")

    @both
    async def test_output_as_it_comes(self, form):
        said = []
        sandbox = await self.sandbox(form)
        code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.05)"
        execution = await did(sandbox.run_code(code, on_stdout=lambda m: said.append(m.line)))
        self.assertEqual(("".join(said), "".join(execution.logs.stdout)), ("0\n1\n2\n", "0\n1\n2\n"))

    async def test_commands_in_the_background(self):
        line = "for i in 1 2 3; do echo line $i; sleep 0.05; done; sleep 60"
        sandbox = await self.sandbox(Sandbox)
        command = sandbox.commands.run(line, background=True)
        for out, _, _ in command:
            if out and "line 3" in out:
                break
        self.assertIn(command.pid, [p.pid for p in sandbox.commands.list()])
        self.assertTrue(command.kill())
        sandbox, third = await self.sandbox(AsyncSandbox), asyncio.Event()
        command = await sandbox.commands.run(line, background=True, on_stdout=lambda out: third.set() if "line 3" in out else None)
        await asyncio.wait_for(third.wait(), 30)
        self.assertIn(command.pid, [p.pid for p in await sandbox.commands.list()])
        self.assertTrue(await command.kill())

    @both
    async def test_a_server_inside(self, form):
        sandbox = await self.sandbox(form)
        await did(sandbox.files.write("/home/user/www/index.html", "hello from inside"))
        await did(sandbox.commands.run("python3 -m http.server 3000 -d /home/user/www", background=True))
        self.assertTrue(sandbox.get_host(3000).startswith(f"3000-{sandbox.sandbox_id}."))
        page = "import time, urllib.request as u\nfor _ in range(300):\n    try:\n        print(u.urlopen('http://localhost:3000').read().decode())\n        break\n    except OSError:\n        time.sleep(0.1)"
        self.assertEqual((await did(sandbox.run_code(page))).logs.stdout, ["hello from inside\n"])

    @both
    async def test_which_sandbox_is_whose(self, form):
        whose = "quick-start-" + form.__name__
        mine = await self.sandbox(form, metadata={"userId": whose})
        page = await did(form.list(query=SandboxQuery(metadata={"userId": whose})).next_items())
        self.assertEqual([s.sandbox_id for s in page], [mine.sandbox_id])
        again = await did(form.connect(page[0].sandbox_id))
        await did(again.set_timeout(60))
        left = await did(again.get_info())
        self.assertLess((left.end_at - left.started_at).total_seconds(), 120)
        self.assertTrue(await did(again.is_running()))

    @both
    async def test_sleep_and_go_on(self, form):
        sandbox = await self.sandbox(form)
        await did(sandbox.run_code("x = [1, 2]"))
        await did(sandbox.pause())
        again = await did(form.connect(sandbox.sandbox_id))
        self.assertEqual((await did(again.run_code("x + [3]"))).text, "[1, 2, 3]")

    @both
    async def test_environment(self, form):
        sandbox = await self.sandbox(form, envs={"MY_VAR": "of the sandbox"})
        self.assertEqual((await did(sandbox.commands.run("echo $MY_VAR"))).stdout, "of the sandbox\n")
        self.assertEqual((await did(sandbox.commands.run("echo $MY_VAR", envs={"MY_VAR": "of the command"}))).stdout, "of the command\n")
        self.assertEqual((await did(sandbox.run_code("import os; os.environ['MY_VAR']", envs={"MY_VAR": "of the code"}))).text, "of the code")

    @both
    async def test_a_template_of_ones_own(self, form):
        template = AsyncTemplate if form is AsyncSandbox else Template
        name = "quick" + uuid.uuid4().hex[:12]
        self.addCleanup(forget, name)
        recipe = template().from_base_image().set_envs({"HELLO": "Hello, World!"}).set_start_cmd("echo $HELLO >/tmp/said", wait_for_timeout(1_000))
        await did(template.build(recipe, name, cpu_count=1, memory_mb=1024, on_build_logs=lambda _: None))
        sandbox = await self.sandbox(form, template=name)
        self.assertEqual((await did(sandbox.commands.run("echo $HELLO; cat /tmp/said"))).stdout, "Hello, World!\nHello, World!\n")


def forget(name):
    url = f"{os.environ['E2B_API_URL']}/templates/{name}"
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE", headers={"X-API-Key": os.environ["E2B_API_KEY"]})).close()


if __name__ == "__main__":
    suite.main()
