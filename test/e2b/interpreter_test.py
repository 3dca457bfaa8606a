"""Every call of E2B's code interpreter for Python, sync and async, against a server of this tree."""

import asyncio
import base64
import unittest

from e2b_code_interpreter import AsyncSandbox, Sandbox

import suite


class Interpreter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=300)
        cls.addClassCleanup(cls.sandbox.kill)

    def run_code(self, code, **options):
        return self.sandbox.run_code(code, **options)

    def test_value_and_output(self):
        self.run_code("x = 20")
        execution = self.run_code("import sys; print('out'); print('err', file=sys.stderr); x + 1")
        self.assertEqual((execution.text, execution.error), ("21", None))
        self.assertEqual(("".join(execution.logs.stdout), "".join(execution.logs.stderr)), ("out\n", "err\n"))
        self.assertEqual(len(execution.results), 1)
        self.assertTrue(execution.results[0].is_main_result)

    def test_first_is_the_first(self):
        with Sandbox.create(timeout=60) as fresh:
            self.assertEqual(fresh.run_code("1").execution_count, 1)
            self.assertEqual(fresh.run_code("1").execution_count, 2)

    def test_displayed(self):
        execution = self.run_code("from IPython.display import HTML, Markdown, JSON\ndisplay(HTML('<b>b</b>'))\ndisplay(Markdown('# m'))\ndisplay(JSON({'a': 1}))")
        self.assertIsNone(execution.text)
        html, markdown, json = execution.results
        self.assertEqual((html.html, markdown.markdown, json.json), ("<b>b</b>", "# m", {"a": 1}))
        self.assertFalse(html.is_main_result)

    def test_error(self):
        execution = self.run_code("1 / 0")
        self.assertEqual((execution.error.name, execution.error.value), ("ZeroDivisionError", "division by zero"))
        self.assertIn("1 / 0", execution.error.traceback)

    def test_handlers(self):
        out, err, results, errors = [], [], [], []
        self.run_code(
            "import sys\nprint(1)\nprint(2, file=sys.stderr)\ndisplay(3)\n1/0",
            on_stdout=lambda m: out.append(m.line), on_stderr=lambda m: err.append(m.line),
            on_result=results.append, on_error=errors.append,
        )
        self.assertEqual((out, err, results[0].text, errors[0].name), (["1\n"], ["2\n"], "3", "ZeroDivisionError"))

    def test_envs(self):
        self.assertEqual(self.run_code("import os; os.environ['A']", envs={"A": "b"}).text, "b")
        self.assertEqual(self.run_code("os.environ.get('A', 'gone')").text, "gone")

    def test_home(self):
        self.sandbox.files.write("data.csv", "a,b\n1,2\n")
        self.assertEqual(self.run_code("import os; os.getcwd(), open('data.csv').read()").text, "('/home/user', 'a,b\\n1,2\\n')")

    def test_bash(self):
        # In one piece or in two, as the shell writes it.
        said = "".join(self.run_code("echo hello; pwd", language="bash").logs.stdout)
        self.assertEqual(said, "hello\n/home/user\n")

    def test_contexts(self):
        context = self.sandbox.create_code_context(cwd="/tmp")
        self.assertEqual((context.language, context.cwd), ("python", "/tmp"))
        self.assertEqual(self.run_code("import os; y = 5; os.getcwd()", context=context).text, "/tmp")
        self.assertEqual(self.run_code("y").error.name, "NameError")
        self.assertIn(context.id, [c.id for c in self.sandbox.list_code_contexts()])
        self.sandbox.restart_code_context(context)
        self.assertEqual(self.run_code("y", context=context).error.name, "NameError")
        self.sandbox.remove_code_context(context)
        self.assertNotIn(context.id, [c.id for c in self.sandbox.list_code_contexts()])

    def test_table(self):
        result = self.run_code("import pandas as pd; pd.DataFrame({'a': [1, 2], 'b': ['x', None]})").results[0]
        self.assertEqual(result.data, {"a": [1, 2], "b": ["x", None]})
        self.assertIn("<table", result.html)

    def test_charts(self):
        def chart(code):
            results = self.run_code("import matplotlib.pyplot as plt\nplt.close('all')\n" + code + "\nplt.show()").results
            self.assertTrue(base64.b64decode(results[0].png).startswith(b"\x89PNG"))
            return results[0].chart

        line = chart("plt.plot([1, 2, 3], [2, 4, 8], label='l'); plt.title('T'); plt.xlabel('time (s)'); plt.ylabel('v')")
        self.assertEqual((line.type.value, line.title, line.x_label, line.x_unit, line.y_label), ("line", "T", "time (s)", "s", "v"))
        self.assertEqual((line.elements[0].label, line.elements[0].points), ("l", [(1, 2), (2, 4), (3, 8)]))
        self.assertIn("1.0", [repr(t) for t in line.x_ticks])
        scatter = chart("plt.scatter([1, 2], [3, 4])")
        self.assertEqual((scatter.type.value, scatter.elements[0].points), ("scatter", [(1, 3), (2, 4)]))
        bar = chart("plt.bar(['a', 'b'], [3, 4])")
        self.assertEqual([(e.label, e.group, repr(e.value)) for e in bar.elements], [("a", "Group 0", "3.0"), ("b", "Group 0", "4.0")])
        pie = chart("plt.pie([1, 3], labels=['a', 'b'])")
        self.assertEqual([(e.label, e.angle) for e in pie.elements], [("a", 90.0), ("b", 270.0)])
        box = chart("plt.boxplot([[1, 2, 3, 4, 100]])")
        self.assertEqual((box.type.value, box.elements[0].median, box.elements[0].outliers), ("box_and_whisker", 3, [100]))
        box = chart("plt.boxplot([[1, 2, 3, 4, 100], [1, 2, 2.5]], patch_artist=True)")
        self.assertEqual((type(box).__name__, [repr(e.min) for e in box.elements]), ("BoxAndWhiskerChart", ["1.0", "1.0"]))
        both = chart("f, (a, b) = plt.subplots(1, 2); a.plot([1], [2]); b.bar(['x'], [1])")
        self.assertEqual((both.type.value, [c.type.value for c in both.elements]), ("superchart", ["line", "bar"]))

    def test_timeout(self):
        with self.assertRaises(Exception) as caught:
            self.run_code("import time; time.sleep(60)", timeout=1)
        self.assertIn("timed out", str(caught.exception).lower())

    def test_async(self):
        async def all_of_it():
            async with await AsyncSandbox.create(timeout=60) as sandbox:
                execution = await sandbox.run_code("print('hi'); 6 * 7")
                context = await sandbox.create_code_context(language="bash")
                await sandbox.run_code("v=1", context=context)
                said = await sandbox.run_code("echo $v", context=context)
                ids = [c.id for c in await sandbox.list_code_contexts()]
                await sandbox.restart_code_context(context)
                await sandbox.remove_code_context(context)
                return execution, said, context.id in ids

        execution, said, listed = asyncio.run(all_of_it())
        self.assertEqual((execution.text, "".join(execution.logs.stdout), "".join(said.logs.stdout), listed), ("42", "hi\n", "1\n", True))


if __name__ == "__main__":
    suite.main()
