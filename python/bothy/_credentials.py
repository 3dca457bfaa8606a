"""Where the server is and which key opens it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import CredentialsError

_HINT = "Start a server with `bothy up`, or set BOTHY_URL and BOTHY_API_KEY."


@dataclass(frozen=True, slots=True)
class Credentials:
    """The server's address and an API key."""

    url: str
    api_key: str = field(repr=False)


def find_credentials(url: str | None = None, api_key: str | None = None) -> Credentials:
    """Return the credentials from the arguments, the environment or the file of ``bothy up``.

    Each of the two is taken from the first place that has it. The file's key is used only
    with the file's own URL, so that it is never sent to another server.

    Raises:
        CredentialsError: The URL or the key was found nowhere.
    """
    url = url or os.environ.get("BOTHY_URL")
    api_key = api_key or os.environ.get("BOTHY_API_KEY")
    if not (url and api_key):
        stored = _stored()
        if api_key or not url or url.rstrip("/") == stored.get("url", "").rstrip("/"):
            api_key = api_key or stored.get("api_key")
        url = url or stored.get("url")
    if not url:
        raise CredentialsError("no server was named and none was found", hint=_HINT)
    if not api_key:
        raise CredentialsError(f"no API key was given for {url}", hint=_HINT)
    return Credentials(_checked(url), api_key.strip())


def credentials_path() -> Path:
    """Return the file to which ``bothy up`` and ``bothy serve`` write a server's credentials.

    It is ``bothy/credentials.json`` in ``$XDG_CONFIG_HOME``, or in ``~/.config`` where that is
    not set.
    """
    chosen = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    if not chosen.is_absolute():
        chosen = Path.home() / ".config"
    return chosen / "bothy" / "credentials.json"


def _stored() -> dict[str, str]:
    path = credentials_path()
    profile = os.environ.get("BOTHY_PROFILE")
    if profile:
        path = path.parent / "profiles" / f"{profile}.json"
    try:
        if profile and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", profile):
            raise FileNotFoundError(profile)
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if profile:
            hint = "`bothy profile ls` lists those that BOTHY_PROFILE can name."
            raise CredentialsError(f"there is no profile {profile!r}", hint=hint) from error
        return {}
    except (OSError, ValueError) as error:
        raise CredentialsError(f"{path} cannot be read: {error}", hint=_HINT) from error
    if not isinstance(content, dict):
        raise CredentialsError(f"{path} does not hold a JSON object", hint=_HINT)
    return {key: value for key, value in content.items() if isinstance(value, str)}


def _checked(url: str) -> str:
    url = url.strip().rstrip("/")
    if "://" not in url:
        url = "http://" + url
    if not url.startswith(("http://", "https://")):
        raise CredentialsError(f"the server's URL {url!r} is neither http nor https", hint=_HINT)
    return url
