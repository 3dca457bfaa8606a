"""The fenced blocks of a Markdown page, and what is wrong with how they are fenced."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("sh", "python", "ts", "js", "json", "toml", "yaml", "nginx", "mermaid", "text")
# What is only looked at.
NOT_RUN = ("mermaid", "text")

_FENCE = re.compile(r"^(```+)\s*(\S*)\s*$")


@dataclass(frozen=True)
class Block:
    """One fenced block: what it is written in, its text, and the line of the page that it begins at."""

    page: Path
    line: int
    language: str
    source: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class BadPage(Exception):
    """A page with a block that nobody can run. Its arguments are sentences, one for each."""


def read(page: Path, name: str | None = None) -> list[Block]:
    """Return the blocks of a page in order, or raise BadPage. name is what to call the page."""
    called = Path(name or page)
    blocks: list[Block] = []
    wrong: list[str] = []
    fence = ""
    begun = 0
    lines: list[str] = []
    language = ""
    before = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        mark = _FENCE.match(line)
        if fence:
            if mark and not mark[2] and len(mark[1]) >= len(fence):
                blocks.append(Block(called, begun + 1, language, "\n".join(lines) + "\n"))
                fence = ""
            else:
                lines.append(line)
        elif mark:
            fence, language, begun, lines = mark[1], mark[2], number, []
            if language not in LANGUAGES:
                wrong.append(
                    f"{called}:{number}: {language or 'no language'} is not one of {' '.join(LANGUAGES)}"
                )
        elif line.startswith("    ") and not before.strip():
            wrong.append(f"{called}:{number}: an indented block; fence it, so that it is run")
        # An indented line continues with the list item or the block before it.
        before = line if line.strip() or not before.startswith((" ", "-")) else before
    if fence:
        wrong.append(f"{called}:{begun}: the fence is not closed")
    if wrong:
        raise BadPage(*wrong)
    return blocks
