"""How answers become errors."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from pathlib import Path

import pytest

import bothy
from bothy import BothyError, CommandError, ExecResult
from bothy._errors import error_from_response


def answer(status: int, code: str, **headers: str) -> BothyError:
    body = {"status": status, "code": code, "detail": "d", "hint": "h"}
    return error_from_response(status, headers, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "invalid_argument", bothy.InvalidArgumentError),
        (401, "unauthenticated", bothy.AuthenticationError),
        (401, "token_expired", bothy.AuthenticationError),
        (403, "missing_scope", bothy.ForbiddenError),
        (403, "permission_denied", bothy.PermissionDeniedError),
        (404, "not_found", bothy.NotFoundError),
        (404, "sandbox_not_found", bothy.SandboxNotFoundError),
        (404, "snapshot_not_found", bothy.SnapshotNotFoundError),
        (404, "template_not_found", bothy.TemplateNotFoundError),
        (404, "process_not_found", bothy.ProcessNotFoundError),
        (404, "context_not_found", bothy.ContextNotFoundError),
        (404, "file_not_found", bothy.FileNotFoundInSandboxError),
        (400, "command_not_found", bothy.CommandNotFoundError),
        (409, "conflict", bothy.ConflictError),
        (409, "sandbox_paused", bothy.SandboxPausedError),
        (409, "sandbox_ended", bothy.SandboxEndedError),
        (409, "sandbox_not_ready", bothy.SandboxNotReadyError),
        (409, "file_exists", bothy.FileExistsInSandboxError),
        (400, "is_a_directory", bothy.IsADirectoryInSandboxError),
        (400, "not_a_directory", bothy.NotADirectoryInSandboxError),
        (507, "disk_full", bothy.DiskFullError),
        (413, "too_large", bothy.TooLargeError),
        (422, "idempotency_mismatch", bothy.ConflictError),
        (409, "outcome_unknown", bothy.OutcomeUnknownError),
        (429, "quota_exceeded", bothy.QuotaExceededError),
        (429, "rate_limited", bothy.RateLimitedError),
        (501, "unsupported", bothy.UnsupportedError),
        (502, "guest_unreachable", bothy.ServerError),
        (503, "capacity", bothy.CapacityError),
        (503, "engine_unavailable", bothy.ServerError),
        (422, "acceleration_unavailable", bothy.UnsupportedError),
        (504, "timeout", bothy.RequestTimeoutError),
        (500, "internal", bothy.ServerError),
        # Codes that a newer server may have.
        (404, "moon_not_found", bothy.NotFoundError),
        (409, "eclipse", bothy.ConflictError),
        (599, "comet", bothy.ServerError),
        (418, "teapot", BothyError),
    ],
)
def test_class_of_a_code(status: int, code: str, expected: type[BothyError]) -> None:
    error = answer(status, code)
    assert type(error) is expected
    assert (error.code, error.status, error.detail, error.hint) == (code, status, "d", "h")


def test_every_code_of_the_server_is_known() -> None:
    source = Path(__file__).resolve().parents[2] / "error.go"
    if not source.exists():
        pytest.skip("not in a clone of the whole repository")
    codes = re.findall(r'Code\w*\s+Code = "(\w+)"', source.read_text())
    assert len(codes) > 30
    by_status = {"method_not_allowed", "unsupported_media_type", "misdirected_request"}
    for code in set(codes) - by_status:
        assert type(answer(418, code)) is not BothyError, code


def test_each_code_says_whose_fault_it_is() -> None:
    faults = Path(__file__).resolve().parents[2] / "test/vectors/testdata/faults.json"
    if not faults.exists():
        pytest.skip("not in a clone of the whole repository")
    table = json.loads(faults.read_text())
    codes = re.findall(r'Code\w*\s+Code = "(\w+)"', (faults.parents[3] / "error.go").read_text())
    assert set(codes) <= set(table)
    for code, (infrastructure, retryable) in table.items():
        error = answer(418, code)
        assert (error.infrastructure, error.retryable) == (infrastructure, retryable), code
    assert answer(502, "comet").infrastructure and not answer(409, "comet").infrastructure
    assert answer(409, "conflict", **{"retry-after": "1"}).retryable


def test_options_of_many_are_those_of_one() -> None:
    one = set(inspect.signature(bothy.Sandbox.create).parameters)
    assert set(bothy.CreateOptions.__annotations__) == one - {"tag", "url", "api_key", "client"}


def test_headers() -> None:
    error = answer(503, "capacity", **{"retry-after": "2", "x-request-id": "r-1"})
    assert (error.retry_after, error.request_id) == (2.0, "r-1")
    assert answer(503, "capacity", **{"retry-after": "tomorrow"}).retry_after is None


def test_answer_of_something_else() -> None:
    for body in (b"<html>Bad Gateway</html>", b"[1]", b"", b"\xff\xfe"):
        error = error_from_response(502, {}, body)
        assert type(error) is bothy.ServerError and error.status == 502
    assert "Bad Gateway" in str(error_from_response(502, {}, b"<html>Bad Gateway</html>"))


def test_builtin_relatives() -> None:
    assert issubclass(bothy.RequestTimeoutError, TimeoutError)
    assert issubclass(bothy.ConnectionFailedError, ConnectionError)
    error = bothy.ConnectionFailedError("broken", hint="Mend it.")
    assert str(error) == "broken [connection_failed] Mend it."


def test_errors_can_be_pickled() -> None:
    command = CommandError(ExecResult(exit_code=2, stderr="no\n"))
    connection = bothy.ConnectionFailedError("x", hint="h")
    for error in (answer(409, "sandbox_paused"), command, connection):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error)
        assert copy.__dict__ == error.__dict__
    assert "sandbox_paused" in repr(answer(409, "sandbox_paused"))


def test_long_output_in_an_error_is_cut() -> None:
    with pytest.raises(CommandError) as caught:
        ExecResult(exit_code=1, stdout="x" * 9999).check()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (
            "Resume it first: POST /v1/sandboxes/sbx1/resume, or ask.",
            'Resume it first: Sandbox.resume("sbx1"), or ask.',
        ),
        (
            "List your sandboxes with `bothy ls --all` or GET /v1/sandboxes.",
            "List your sandboxes with `bothy ls --all` or Sandbox.list().",
        ),
        (
            "Make a new one: POST /v1/sandboxes/{id}/links.",
            "Make a new one: sandbox.create_link().",
        ),
        (
            "Follow GET /v1/sandboxes/{id}/processes/{pid}/output.",
            "Follow sandbox.process(pid).output().",
        ),
        ("Look it up with GET /v1/snapshots/snp1.", 'Look it up with client.snapshot("snp1").'),
        ("List them with GET /v1/webhooks.", "List them with GET /v1/webhooks."),
    ],
)
def test_hints_name_python(hint: str, expected: str) -> None:
    body = {"status": 409, "code": "conflict", "detail": "d", "hint": hint}
    assert error_from_response(409, {}, json.dumps(body).encode()).hint == expected
