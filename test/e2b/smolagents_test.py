"""The executor of smolagents for E2B, against a server of this tree."""

import unittest

from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import E2BExecutor

import suite


class Smolagents(unittest.TestCase):
    def test_executor(self):
        executor = E2BExecutor([], AgentLogger(level=0))
        self.addCleanup(executor.cleanup)
        executor.send_variables({"x": 20})
        out = executor("print('said')\nx + 1")
        self.assertEqual((out.output, out.logs.strip(), out.is_final_answer), ("21", "said", False))
        self.assertIsNone(executor("y = 2").output)
        with self.assertRaises(Exception) as caught:
            executor("1 / 0")
        self.assertIn("ZeroDivisionError", str(caught.exception))
        image = executor("from PIL import Image\nImage.new('RGB', (2, 3))").output
        self.assertEqual(image.size, (2, 3))


if __name__ == "__main__":
    suite.main()
