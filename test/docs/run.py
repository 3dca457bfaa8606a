"""Runs every fenced block of the documentation, page by page and in order.

    python test/docs/run.py [PAGE…]

Each page has a server, a home and a working folder of its own; the folder looks like a
fresh clone. Blocks of one language share a session: the shell's variables, Python's
names and the program's scope go on from block to block. What a page presupposes is in
preludes/PAGE.sh. A block that fails ends its page, and the run fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pages
from data import Data, free_port
from pages import BadPage, Block
from sessions import HERE, KINDS, Failed

REPOSITORY = HERE.parent.parent
LITERAL = "127.0.0.1:7700"  # the server's usual address
# Places of the host that pages name, and what they are in a page's folder.
PLACES = {
    "/etc/bothy.yaml": "etc/bothy.yaml",
    "/etc/systemd": "etc/systemd",
    "/root": "user",
    "/usr/local": "prefix",
    "/var/lib/bothy": "home",
    "/var/backups": "backups",
}
_PLACE = re.compile(r"(?<![\w./:])(" + "|".join(PLACES) + r")\b")


def all_pages() -> list[Path]:
    # The command line's page is made from what the program says, and checked against it.
    docs = [p for p in sorted((REPOSITORY / "docs").glob("*.md")) if p.name != "cli.md"]
    readmes = [REPOSITORY / name for name in ("README.md", "python/README.md", "js/README.md")]
    return [*readmes, *docs]


class Page:
    """A page on its way: its folder, and what runs in it."""

    def __init__(self, path: Path, work: Path, root: Path = REPOSITORY) -> None:
        self.name = path.relative_to(root)
        self.blocks = pages.read(path, str(self.name))
        self._slug = "-".join(self.name.with_suffix("").parts).lower()
        self._folder = work / self._slug
        self._listen = f"127.0.0.1:{free_port()}"
        self._environment = self._prepare()
        self._sessions: dict[type, object] = {}

    def _prepare(self) -> dict[str, str]:
        clone = self._folder / "bothy"
        for folder in ("bothy", "user", "home", "etc", "prefix/bin"):
            (self._folder / folder).mkdir(parents=True, mode=0o711)
        self._folder.chmod(0o711)
        for entry in REPOSITORY.iterdir():
            if entry.name != ".git":
                (clone / entry.name).symlink_to(entry)
        python = Path(sys.executable).parent
        if any(b.language == "sh" and "pip install" in b.source for b in self.blocks):
            python = self._folder / "venv/bin"
            subprocess.run([sys.executable, "-m", "venv", python.parent], check=True)
        theirs = {k: v for k, v in os.environ.items() if not k.startswith("BOTHY_")}
        path = [HERE / "standins", self._folder / "prefix/bin", python, REPOSITORY / "bin"]
        return {
            # What was fetched and compiled already is not fetched and compiled again.
            **caches(),
            **theirs,
            "HOME": str(self._folder / "user"),
            "PATH": ":".join([*map(str, path), os.environ["PATH"]]),
            "PREFIX": str(self._folder / "prefix"),
            "BOTHY_HOME": str(self._folder / "home"),
            "BOTHY_LISTEN": self._listen,
            "BOTHY_TEMPLATES": own_templates(self._folder / "templates"),
            "BOTHY_KERNELS": os.environ.get("BOTHY_KERNELS", "/var/lib/bothy/kernels"),
            "BOTHY_SHARE": str(REPOSITORY / "bin/share"),
            # A page is over before a pool is filled.
            "BOTHY_POOL": "off",
            "DOCS_REPOSITORY": str(REPOSITORY),
            "DOCS_ETC": str(self._folder / "etc"),
            "DOCS_MAKE": shutil.which("make") or "make",
        }

    def run(self) -> None:
        """Run all blocks; raise Failed at the first that fails."""
        try:
            prelude = HERE / "preludes" / f"{self._slug}.sh"
            if prelude.exists():
                self._run(Block(prelude.relative_to(REPOSITORY), 1, "sh", prelude.read_text()))
            for block in self.blocks:
                self._run(block)
            for session in list(self._sessions.values()):
                session.session.end()  # type: ignore[attr-defined]
        finally:
            for session in self._sessions.values():
                session.session.close()  # type: ignore[attr-defined]
            self._end_servers()

    def _end_servers(self) -> None:
        """End the server of the page, and all sandboxes that it knows."""
        service = self._folder / "etc/bothy.pid"
        if service.exists():
            self._command("systemctl", "stop", "bothy")
        if (self._folder / "home/bothy.db").exists():
            self._command("bothy", "up")
            self._command("bothy", "down", "--terminate")

    def _command(self, *words: str) -> None:
        program = shutil.which(words[0], path=self._environment["PATH"]) or words[0]
        done = subprocess.run(
            [program, *words[1:]], env=self._environment, capture_output=True, text=True
        )
        if done.returncode:
            print(f"{self.name}: {' '.join(words)}: {done.stdout}{done.stderr}", file=sys.stderr)

    def _run(self, block: Block) -> None:
        if block.language in pages.NOT_RUN:
            return
        here = Block(block.page, block.line, block.language, self._localise(block.source))
        clone = self._folder / "bothy"
        try:
            kind = KINDS.get(block.language)
            if kind is None:
                Data(clone, self._environment).check(here)
                return
            if kind not in self._sessions:
                same = [
                    Block(b.page, b.line, b.language, self._localise(b.source))
                    for b in self.blocks
                    if KINDS.get(b.language) is kind
                ]
                self._sessions[kind] = kind(same, clone, self._environment)
            self._sessions[kind].run(here)  # type: ignore[attr-defined]
        except Failed as failed:
            raise Failed(f"{block.place}: this {block.language} block {failed}") from failed

    def _localise(self, source: str) -> str:
        source = source.replace(LITERAL, self._listen)
        return _PLACE.sub(lambda found: str(self._folder / PLACES[found[0]]), source)


def own_templates(folder: Path) -> str:
    made = subprocess.run(
        [REPOSITORY / "scripts/own-templates", folder], capture_output=True, text=True, check=True
    )
    return made.stdout.strip()


def caches() -> dict[str, str]:
    go = subprocess.run(
        ["go", "env", "GOCACHE", "GOMODCACHE", "GOPATH"], capture_output=True, text=True
    ).stdout.split()
    found = dict(zip(("GOCACHE", "GOMODCACHE", "GOPATH"), go, strict=False))
    home = Path.home()
    return {
        **found,
        "PIP_CACHE_DIR": str(home / ".cache/pip"),
        "npm_config_cache": str(home / ".npm"),
    }


def run_page(path: Path, work: Path, root: Path = REPOSITORY) -> list[str]:
    """Run a page and return what is wrong with it."""
    started = time.monotonic()
    try:
        page = Page(path, work, root)
        page.run()
    except (BadPage, Failed) as error:
        return [str(arg) for arg in error.args]
    run = sum(block.language not in pages.NOT_RUN for block in page.blocks)
    print(f"{page.name}: {run} blocks in {time.monotonic() - started:.1f} s", flush=True)
    return []


def main(names: list[str]) -> int:
    chosen = [Path(name).resolve() for name in names] or all_pages()
    work = Path(tempfile.mkdtemp(prefix="bothy-docs-", dir="/var/tmp"))
    work.chmod(0o711)
    wrong: list[str] = []
    try:
        for path in chosen:
            wrong += run_page(path, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
