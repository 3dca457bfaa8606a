"""Where the URL and the key come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bothy import Client, CredentialsError
from bothy._credentials import find_credentials


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("BOTHY_URL", raising=False)
    monkeypatch.delenv("BOTHY_API_KEY", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("BOTHY_PROFILE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def store(home: Path, text: str) -> None:
    path = home / ".config" / "bothy" / "credentials.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_nothing_at_all(home: Path) -> None:
    with pytest.raises(CredentialsError, match="bothy up") as caught:
        Client()
    assert caught.value.code == "no_credentials"


def test_file_then_environment_then_arguments(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(home, json.dumps({"url": "http://127.0.0.1:1", "api_key": "file"}))
    assert find_credentials().api_key == "file"
    monkeypatch.setenv("BOTHY_API_KEY", "environment")
    found = find_credentials()
    assert (found.url, found.api_key) == ("http://127.0.0.1:1", "environment")
    monkeypatch.setenv("BOTHY_URL", "https://bothy.example.org/")
    assert find_credentials().url == "https://bothy.example.org"
    found = find_credentials("localhost:7700", "argument")
    assert (found.url, found.api_key) == ("http://localhost:7700", "argument")


def test_file_is_where_the_environment_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(home, json.dumps({"url": "http://127.0.0.1:1", "api_key": "home"}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    with pytest.raises(CredentialsError):  # the file in ~/.config may be another server's
        find_credentials()
    path = home / "xdg" / "bothy" / "credentials.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"url": "http://127.0.0.1:1", "api_key": "xdg"}))
    assert find_credentials().api_key == "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", "xdg")
    assert find_credentials().api_key == "home"


def test_stored_key_goes_to_its_own_server_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, json.dumps({"url": "http://127.0.0.1:1/", "api_key": "file"}))
    monkeypatch.setenv("BOTHY_URL", "http://127.0.0.1:1")
    assert find_credentials().api_key == "file"
    with pytest.raises(CredentialsError, match=r"no API key was given for http://evil\.example"):
        find_credentials("http://evil.example")


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_damaged_file(home: Path, text: str) -> None:
    store(home, text)
    with pytest.raises(CredentialsError, match=r"credentials\.json"):
        find_credentials()


def test_url_that_cannot_be(home: Path) -> None:
    with pytest.raises(CredentialsError, match="neither http nor https"):
        find_credentials("ftp://x", "k")


def test_key_is_never_shown(home: Path) -> None:
    client = Client("http://127.0.0.1:1", "bothy_hush")
    assert "hush" not in repr(client) + repr(client._credentials)
    assert client.url == "http://127.0.0.1:1"


def test_profile(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(home, json.dumps({"url": "http://127.0.0.1:1", "api_key": "file"}))
    profiles = home / ".config" / "bothy" / "profiles"
    profiles.mkdir()
    (profiles / "work.json").write_text(json.dumps({"url": "https://work.test", "api_key": "w"}))
    monkeypatch.setenv("BOTHY_PROFILE", "work")
    found = find_credentials()
    assert (found.url, found.api_key) == ("https://work.test", "w")
    for name in ["other", "../credentials"]:
        monkeypatch.setenv("BOTHY_PROFILE", name)
        with pytest.raises(CredentialsError, match="there is no profile"):
            find_credentials()
