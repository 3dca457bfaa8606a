"""Code that keeps its variables, in real sandboxes."""

from __future__ import annotations

from bothy import Sandbox


def test_variables_stay(sbx: Sandbox) -> None:
    assert sbx.run_code("x = 20").check().text is None
    result = sbx.run_code("print('hi')\nx + 1")
    assert (result.text, result.stdout) == ("21", "hi\n")
    assert result.execution_count > 1


def test_exceptions(sbx: Sandbox) -> None:
    result = sbx.run_code("1 / 0")
    assert result.error is not None and result.error.name == "ZeroDivisionError"
    assert "division by zero" in result.error.traceback


def test_contexts(sbx: Sandbox) -> None:
    one, two = sbx.contexts.create("python"), sbx.contexts.create("python")
    sbx.run_code("x = 1", context=one)
    assert sbx.run_code("x", context=two).error is not None
    assert sbx.run_code("x", context=one).text == "1"
    assert {one.id, two.id} <= {context.id for context in sbx.contexts.list()}
    sbx.contexts.remove(one)
    assert one.id not in {context.id for context in sbx.contexts.list()}


def test_streaming(sbx: Sandbox) -> None:
    out: list[str] = []
    shown: list[object] = []
    result = sbx.run_code("print('a')\n42", on_stdout=out.append, on_result=shown.append)
    assert "".join(out) == "a\n" == result.stdout
    assert result.text == "42" and len(shown) == 1


def test_other_languages(sbx: Sandbox, template: str) -> None:
    if template == "python-3.12":
        squares = sbx.run_code("[1, 2, 3].map((n) => n * n)", "javascript").check()
        assert squares.results[0]["application/json"] == "[1,4,9]"
    assert sbx.run_code("echo $((6 * 7))", "bash").check().stdout == "42\n"
