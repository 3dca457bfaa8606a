"""Writes docs/fork.svg: a terminal in which a sandbox is forked and rolled back, drawn from a real run.

    BOTHY_URL=… BOTHY_API_KEY=… python test/docs/picture.py

The commands are run one after the other against a server with the template python-3.12, and what they print is drawn
as it came. Times between them are those of a reader, not of the server.
"""

from __future__ import annotations

import os
import subprocess
import time
from html import escape
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
WIDTH, LINE, LEFT, TOP = 760, 19, 18, 46
TYPED, READ, END = 0.035, 0.9, 4.0  # seconds: for a letter, after an answer, and at the end

SCRIPT = """\
bothy create python-3.12 --name app
bothy exec app 'echo "tests pass" >state.txt; seq 1e6 | md5sum >data.md5'
bothy snapshot app --name good
bothy fork app --name other
bothy exec other 'echo "a bold rewrite" >state.txt; cat state.txt'
bothy exec app 'rm -rf /workspace/*; ls -A | wc -l'
bothy rollback app good
bothy exec app 'cat state.txt'
bothy rm app other"""


def run() -> list[tuple[str, list[str], float]]:
    """Run each line, and return it with what it printed and how long it took."""
    done = []
    environment = {**os.environ, "PATH": f"{REPOSITORY}/bin:{os.environ['PATH']}"}
    for line in SCRIPT.splitlines():
        begun = time.monotonic()
        ended = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=True)
        done.append((line, ended.stdout.splitlines(), time.monotonic() - begun))
    return done


def draw(done: list[tuple[str, list[str], float]]) -> str:
    """Draw the lines, each visible from its moment on."""
    rows: list[str] = []
    clock, y = 0.5, TOP
    moments: list[tuple[str, str, float]] = []  # what, how, when

    def row(text: str, kind: str, at: float) -> None:
        nonlocal y
        moments.append((f'<text class="{kind}" x="{LEFT}" y="{y}" xml:space="preserve">{text}</text>', kind, at))
        y += LINE

    for line, printed, seconds in done:
        row(f'<tspan class="p">$</tspan> {escape(line)}', "c", clock)
        clock += TYPED * len(line)
        took = f'<tspan class="t">   {seconds * 1000:.0f} ms</tspan>'
        for i, text in enumerate(printed):
            row(escape(text) + (took if i == len(printed) - 1 else ""), "o", clock)
        clock += READ
    total = clock + END
    for i, (text, _, at) in enumerate(moments):
        share = 100 * at / total
        rows.append(f"@keyframes k{i}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}#r{i}{{animation:k{i} {total:.1f}s infinite}}")
    lines = "\n".join(f'<g id="r{i}">{text}</g>' for i, (text, _, _) in enumerate(moments))
    height = y + 4
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="A sandbox is forked and rolled back">
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d5dbe3}}.c{{fill:#fff}}.p{{fill:#6fcfab}}.t{{fill:#7f8b99}}
{"".join(rows)}
@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}}}
</style>
<rect width="{WIDTH}" height="{height}" rx="9" fill="#111417"/>
<circle cx="20" cy="18" r="5" fill="#ff938c"/><circle cx="38" cy="18" r="5" fill="#e6b65c"/><circle cx="56" cy="18" r="5" fill="#6fcfab"/>
{lines}
</svg>
"""


if __name__ == "__main__":
    (REPOSITORY / "docs/fork.svg").write_text(draw(run()))
