"""When a failed call is tried again, and after how long."""

from __future__ import annotations

import random

import httpx

from ._errors import BothyError, ConnectionFailedError, RequestTimeoutError

LONGEST_PAUSE = 30.0
"""Seconds; a server that asks for more is not waited for."""

RETRIES = 4
"""How often a call is retried unless the client says otherwise."""

REFUSED_PATIENCE = 25.0
"""Seconds to wait for a server that takes no connections, as one does that is restarting."""

_REFUSED = frozenset({429, 503})
_GATEWAY = frozenset({502, 504})
_FINAL_CODES = frozenset({"quota_exceeded", "engine_unavailable"})
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_HINT = "Is the server running? `bothy up` starts one; `bothy doctor` checks this host."


def failure_of(error: httpx.TransportError, url: str) -> BothyError:
    """Return the error to raise for a call that got no answer."""
    if isinstance(error, _UNSENT):
        return ConnectionFailedError(f"{url} cannot be reached: {_text(error)}", hint=_HINT)
    if isinstance(error, httpx.TimeoutException):
        return RequestTimeoutError(f"{url} did not answer in time: {_text(error)}")
    return ConnectionFailedError(f"the connection to {url} broke: {_text(error)}")


def was_refused(error: BaseException | None) -> bool:
    """Tell whether nothing listened at the address: the request was not sent."""
    if isinstance(error, ConnectionRefusedError):
        return True
    if error is None:
        return False
    several: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return any(map(was_refused, (*several, error.__cause__ or error.__context__)))


def pause_after_break(
    error: httpx.TransportError, attempt: int, *, repeatable: bool
) -> float | None:
    """Return the seconds to wait before trying again, or ``None`` to give up.

    A request that was never sent may be sent again; one that may have been worked on
    only where doing it twice is the same as doing it once (``repeatable``).
    """
    if isinstance(error, _UNSENT):
        return backoff(attempt)
    if isinstance(error, httpx.TimeoutException) or not repeatable:
        return None
    return backoff(attempt)


def pause_after_answer(
    failure: BothyError, attempt: int, *, repeatable: bool, once: bool
) -> float | None:
    """Return the seconds to wait before trying again, or ``None`` to give up.

    A call that was refused was not worked on, so any may be sent again, except where its
    body could be read only ``once``.
    """
    if once or failure.code in _FINAL_CODES:
        return None
    # A conflict that will pass, such as with the first try of the same call, says when.
    passing = failure.status == 409 and failure.retry_after is not None
    if passing or failure.status in _REFUSED or (failure.status in _GATEWAY and repeatable):
        pause = backoff(attempt) if failure.retry_after is None else failure.retry_after
        return pause if pause <= LONGEST_PAUSE else None
    return None


def backoff(attempt: int) -> float:
    """Return 0.1, 0.2, 0.4 … seconds, less up to a half by chance."""
    return min(0.1 * 2.0**attempt, 5.0) * random.uniform(0.5, 1.0)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
