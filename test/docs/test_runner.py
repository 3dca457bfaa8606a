"""The runner must fail where a snippet fails: pages with mistakes, and one without.

python test/docs/test_runner.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import run

FENCE = "```"
# Each is a page and a part of what must be said of it; "" for nothing.
PAGES = {
    "good.md": (
        "sh\nX=1\n~~~\n\n~~~sh\ntest $X = 1\n~~~\n\n~~~python\nx = 1\n~~~\n\n~~~python\nassert x == 1\n~~~\n\n"
        "~~~ts\nconst x: number = 1;\n~~~\n\n~~~ts\nif (x !== 1) throw new Error();\nconst y = x;\n~~~\n\n~~~text\nfalse\n",
        "",
    ),
    "command.md": ("sh\ntrue\nfalse\n", "command.md:2: this sh block ended with 1"),
    "pipe.md": ("sh\nfalse | true\n", "pipe.md:2: this sh block ended with 1"),
    "unset.md": ("sh\necho $NOBODY_SET_THIS\n", "unset.md:2: this sh block ended with 1"),
    "second.md": (
        "sh\ntrue\n~~~\n\n~~~sh\nnosuchprogram\n",
        "second.md:6: this sh block ended with 127",
    ),
    "undefined.md": ("python\nprint(undefined)\n", "NameError"),
    "raise.md": (
        "python\nimport asyncio\n\nasyncio.run(asyncio.sleep(0))\nraise SystemExit(3)\n",
        "ended with 3",
    ),
    "throw.md": ("ts\nthrow new Error('on purpose');\n", "on purpose"),
    "rejects.md": (
        "js\nPromise.reject(new Error('later'));\nawait new Promise((f) => setTimeout(f, 100));\n",
        "later",
    ),
    "syntax.md": ("ts\nconst = 1;\n", "this ts block"),
    "json.md": ("json\n{,}\n", "json.md:2: this json block"),
    "shapeless.md": ("yaml\nno_such_setting: 1\n", "no_such_setting"),
    "language.md": ("\ntrue\n", "no language"),
    "unknown.md": ("console\ntrue\n", "console is not one of"),
    "open.md": ("sh\ntrue\n~~~\n\n~~~sh\ntrue\n", ""),
}


def main() -> int:
    work = Path(tempfile.mkdtemp(prefix="bothy-docs-", dir="/var/tmp"))
    work.chmod(0o711)
    pages = work / "pages"
    pages.mkdir()
    wrong = []
    try:
        for name, (text, expected) in PAGES.items():
            page = pages / name
            page.write_text(f"{FENCE}{text}{FENCE}\n".replace("~~~", FENCE))
            said = "\n".join(run.run_page(page, work, pages))
            if bool(said) != bool(expected) or expected not in said:
                wrong.append(f"{name}: expected {expected!r}, got {said!r}")
        (pages / "indented.md").write_text("Text:\n\n    bothy ls\n")
        if "an indented block" not in "".join(run.run_page(pages / "indented.md", work, pages)):
            wrong.append("an indented block was not found")
        (pages / "unclosed.md").write_text(f"{FENCE}sh\ntrue\n")
        if "not closed" not in "".join(run.run_page(pages / "unclosed.md", work, pages)):
            wrong.append("a fence that is not closed was not found")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(
        "\n".join(wrong) or "the runner finds what is wrong",
        file=sys.stderr if wrong else sys.stdout,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
