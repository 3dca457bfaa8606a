"""What E2B's quick starts begin with, one program each, against a server of this tree."""

import base64
import io
import os
import tempfile
import unittest
import zipfile

from e2b import SandboxQuery
from e2b_code_interpreter import Sandbox

import suite


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


class QuickStarts(unittest.TestCase):
    def sandbox(self, **options):
        sandbox = Sandbox.create(**{"timeout": 120, **options})
        self.addCleanup(sandbox.kill)
        return sandbox

    def test_the_first_sandbox(self):
        sandbox = self.sandbox()
        execution = sandbox.run_code("print('hello world')")
        self.assertEqual(execution.logs.stdout, ["hello world\n"])
        self.assertIn("home", [entry.name for entry in sandbox.files.list("/")])

    def test_a_tool_of_a_model(self):
        """A model writes code, sees what it did wrong, and writes it again."""
        replies = iter(["orders['total']", "orders = {'total': 42}\norders['total']"])
        messages = [{"role": "user", "content": "What is the total of the orders?"}]
        with self.sandbox() as sandbox:
            for code in replies:
                execution = sandbox.run_code(code)
                said = execution.error.traceback if execution.error else execution.text
                messages.append({"role": "tool", "content": said})
        self.assertIn("NameError", messages[1]["content"])
        self.assertEqual(messages[2]["content"], "42")

    def test_files_up_and_down(self):
        sandbox = self.sandbox()
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("one.txt", b"one"), ("two.bin", bytes(range(256)))):
                path = os.path.join(folder, name)
                with open(path, "wb") as f:
                    f.write(content)
                with open(path, "rb") as f:
                    sandbox.files.write("/home/user/up/" + name, f)
                self.assertEqual(bytes(sandbox.files.read("/home/user/up/" + name, format="bytes")), content)
        sandbox.files.write_files([{"path": "/home/user/a", "data": "a"}, {"path": "/home/user/b", "data": b"b"}])
        self.assertEqual([sandbox.files.read("/home/user/" + name) for name in "ab"], ["a", "b"])

    def test_a_package_at_run_time(self):
        sandbox = self.sandbox()
        sandbox.files.write("/home/user/shout-1-py3-none-any.whl", wheel("shout", "def shout(text):\n    return text.upper() + '!'\n"))
        sandbox.commands.run("pip install --no-index ./shout-1-py3-none-any.whl", timeout=60)
        self.assertEqual(sandbox.run_code("from shout import shout\nshout('hey')").text, "'HEY!'")

    def test_analysis_of_data(self):
        sandbox = self.sandbox()
        sandbox.files.write("dataset.csv", "year,films\n2022,3\n2023,5\n2024,8\n")
        execution = sandbox.run_code(
            "import pandas as pd, matplotlib.pyplot as plt\n"
            "table = pd.read_csv('dataset.csv')\n"
            "plt.plot(table.year, table.films)\nplt.title('Films a year')\nplt.show()"
        )
        self.assertIsNone(execution.error)
        (result,) = [r for r in execution.results if r.png]
        self.assertTrue(png(result.png))
        self.assertEqual((result.chart.title, result.chart.type.value), ("Films a year", "line"))

    def test_output_as_it_comes(self):
        said = []
        execution = self.sandbox().run_code("import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.05)", on_stdout=lambda m: said.append(m.line))
        self.assertEqual(("".join(said), "".join(execution.logs.stdout)), ("0\n1\n2\n", "0\n1\n2\n"))

    def test_commands_in_the_background(self):
        sandbox = self.sandbox()
        command = sandbox.commands.run("for i in 1 2 3; do echo line $i; sleep 0.05; done; sleep 60", background=True)
        for out, _, _ in command:
            if out and "line 3" in out:
                break
        self.assertIn(command.pid, [p.pid for p in sandbox.commands.list()])
        self.assertTrue(command.kill())

    def test_which_sandbox_is_whose(self):
        mine = self.sandbox(metadata={"userId": "quick-start"})
        page = Sandbox.list(query=SandboxQuery(metadata={"userId": "quick-start"})).next_items()
        self.assertEqual([s.sandbox_id for s in page], [mine.sandbox_id])
        again = Sandbox.connect(page[0].sandbox_id)
        again.set_timeout(60)
        left = again.get_info()
        self.assertLess((left.end_at - left.started_at).total_seconds(), 120)
        self.assertTrue(again.is_running())

    def test_sleep_and_go_on(self):
        sandbox = self.sandbox()
        sandbox.run_code("x = [1, 2]")
        sandbox.pause()
        again = Sandbox.connect(sandbox.sandbox_id)
        self.assertEqual(again.run_code("x + [3]").text, "[1, 2, 3]")

    def test_environment(self):
        sandbox = self.sandbox(envs={"MY_VAR": "of the sandbox"})
        self.assertEqual(sandbox.commands.run("echo $MY_VAR").stdout, "of the sandbox\n")
        self.assertEqual(sandbox.commands.run("echo $MY_VAR", envs={"MY_VAR": "of the command"}).stdout, "of the command\n")
        self.assertEqual(sandbox.run_code("import os; os.environ['MY_VAR']", envs={"MY_VAR": "of the code"}).text, "'of the code'")


if __name__ == "__main__":
    suite.main()
