"""Logins on the command line: getting one, using it, listing and forgetting them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener, urlopen

import pytest

import trunkline
from tests.cli.support import BROWSER, DEMO, PROTECTED, SECONDS, Cli, Outcome, Served, command, serving
from trunkline.auth.credential_store import FileStore
from trunkline.auth.oauth import OAuth
from trunkline.auth.token_store import LoginStore, StoredLogin

pytest.importorskip("joserfc")
#: Spares the server a registration: an address may have so many in a minute, and no more.
KNOWN = ("--client-id", "known")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def _protected(port: int) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROTECTED_PORT", str(port))
        with serving(PROTECTED, "--http") as served:
            yield served


@pytest.fixture(scope="module")
def protected() -> Iterator[Served]:
    """A server that one has to log in at."""
    with _protected(_free_port()) as served:
        yield served


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for logins, and a browser that notes where it goes: in this process, and in others."""

    def visit(url: str) -> bool:
        with (tmp_path / "visits").open("a", encoding="utf-8") as file:
            file.write(f"{url}\n")
        threading.Thread(target=lambda: urlopen(url, timeout=SECONDS).close(), daemon=True).start()
        return True

    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BROWSER", BROWSER)
    monkeypatch.setenv("VISITS", str(tmp_path / "visits"))
    monkeypatch.setattr("webbrowser.open", visit)
    return tmp_path


def _visits(home: Path) -> list[str]:
    noted = home / "visits"
    return noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []


def _asked(page: str) -> Mapping[str, list[str]]:
    return parse_qs(urlsplit(page).query)


def _login(cli: Cli, url: str, *options: str) -> Outcome:
    """Log in."""
    ended = cli("auth", "login", url, *options)
    assert ended.code == 0, ended.err
    return ended


class _Stay(HTTPRedirectHandler):
    """Does not follow redirects."""

    def redirect_request(self, *given: object) -> None:
        """Stay."""


def _page(screen: str) -> str:
    found = re.search(r"^ {2}(http\S+)", screen, re.M)
    assert found is not None, screen
    return found[1]


def _redirect(screen: str) -> str:
    """Open the page that is shown, on a machine where the redirect leads nowhere; give the address it is to."""
    with pytest.raises(HTTPError) as caught:
        build_opener(_Stay()).open(_page(screen), timeout=SECONDS)
    caught.value.close()
    return f"{caught.value.headers['location']}\n"


@contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])},
    ) as process:
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


# --- login -----------------------------------------------------------------------------------------------------------


def test_a_login_is_used_by_the_next_command(protected: Served, home: Path, cli: Cli) -> None:
    # As a process of its own: that is where a browser is chosen.
    ended = command("auth", "login", protected.url)
    issuer = protected.url.removesuffix("/mcp")
    assert ended.out == f"logged in to {protected.url} at {issuer}; scopes: greet count\n"
    assert cli("call", protected.url, "whoami") == (0, "ada: count greet\n", "")
    assert len(_visits(home)) == 1


def test_a_login_asks_for_the_scopes_that_are_given(protected: Served, home: Path, cli: Cli) -> None:
    shown = json.loads(_login(cli, protected.url, "--scope", "greet", "--json").out)
    assert shown["scopes"] == ["greet"]
    assert _asked(_visits(home)[0])["scope"] == ["greet"]
    assert cli("call", protected.url, "whoami") == (0, "ada: greet\n", "")


def test_a_login_shows_no_token(protected: Served, home: Path, cli: Cli) -> None:
    shown = json.loads(_login(cli, protected.url, "--json").out)
    assert sorted(shown) == ["clientId", "expiresAt", "issuer", "renewable", "resource", "scopes", "url"]


def test_a_second_login_takes_the_place_of_the_first(protected: Served, home: Path, cli: Cli) -> None:
    _login(cli, protected.url, *KNOWN, "--scope", "greet")
    _login(cli, protected.url, "--scope", "count")
    logins = cli("auth", "list", "--json").json["logins"]
    assert [each["scopes"] for each in logins] == [["count"]]


def test_a_login_that_fails_is_code_3_and_leaves_the_one_before(protected: Served, home: Path, cli: Cli) -> None:
    _login(cli, protected.url)
    code, out, err = cli("auth", "login", protected.url, "--scope", "unknown")
    assert (code, out) == (3, "")
    assert err.splitlines()[-1].startswith(f"trunkline: The authorization server {protected.url.removesuffix('/mcp')} ")
    assert cli("call", protected.url, "whoami").code == 0


def test_without_a_browser_and_a_terminal_the_page_is_shown_and_waited_for(protected: Served, home: Path) -> None:
    with _started("auth", "login", protected.url, "--no-browser") as process:
        assert process.stderr is not None
        shown = process.stderr.readline() + process.stderr.readline()
        with urlopen(_page(shown), timeout=SECONDS) as response:
            assert b"You are logged in" in response.read()
        out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out.startswith("logged in to ")) == (0, True)
    assert _visits(home) == []


def test_without_a_browser_the_address_that_the_page_led_to_can_be_pasted(
    protected: Served, home: Path, cli: Cli
) -> None:
    script = (("paste the address of that page here: ", _redirect),)
    code, screen = cli.at_a_terminal("auth", "login", protected.url, "--no-browser", script=script)
    assert code == 0
    assert f"logged in to {protected.url} at " in screen


def test_a_server_without_authorization_needs_no_login(home: Path, cli: Cli) -> None:
    with serving(DEMO, "--http", "0") as served:
        code, out, err = cli("auth", "login", served.url, "--json")
    assert (code, out) == (0, "null\n")
    assert err.endswith("names no authorization server: nothing was stored\n")
    assert _visits(home) == []


def test_login_works_at_an_open_server_that_names_an_authorization_server(
    home: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("PROTECTED_PORT", str(_free_port()))
    with serving(f"{PROTECTED}:welcoming", "--http") as served:
        _login(cli, served.url)
        assert cli("call", served.url, "whoami") == (0, "ada: count greet\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(("login", DEMO), 1, "only a server at a URL has a login", id="a file"),
        pytest.param(("login", "http://mcp.example.com/mcp"), 2, "a login needs an https URL", id="plain http"),
        pytest.param(("login", "https://a:b@mcp.example.com/mcp"), 2, "a login needs an https URL", id="a user"),
        pytest.param(("login", "http://127.0.0.1:1/mcp"), 4, "Cannot connect to", id="nobody there"),
        pytest.param(("login", "http://127.0.0.1:1/mcp", "--scope", "a b"), 2, "is not a valid scope", id="no scope"),
        pytest.param(("logout",), 1, "Give the URL or the name of a server, or --all.", id="no target"),
        pytest.param(("logout", "https://mcp.example.com/mcp", "--all"), 1, "or --all", id="both"),
        pytest.param(("logout", DEMO), 1, "only a server at a URL has a login", id="logout of a file"),
    ],
)
def test_invalid_usage_is_reported_in_one_sentence(
    arguments: tuple[str, ...], code: int, sentence: str, home: Path, cli: Cli
) -> None:
    ended = cli("auth", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err
    assert ended.err.count("\n") == 1


# --- other verbs -----------------------------------------------------------------------------------------------------


def test_without_a_login_the_sentence_says_how_to_get_one(protected: Served, home: Path, cli: Cli) -> None:
    code, out, err = cli("call", protected.url, "whoami")
    assert (code, out, _visits(home)) == (3, "", [])
    assert f"(to log in, run: trunkline auth login {protected.url}; or " in err
    assert err.count("\n") == 1


def test_a_login_that_is_over_is_code_3_and_opens_no_browser(home: Path, cli: Cli) -> None:
    port = _free_port()
    with _protected(port) as served:
        _login(cli, served.url)
    with _protected(port) as served:
        code, out, err = cli("call", served.url, "whoami")
    assert (code, out, len(_visits(home))) == (3, "", 1)
    assert f"trunkline auth login {served.url}" in err
    assert err.count("\n") == 1


def test_what_a_login_does_not_allow_is_code_3_and_opens_no_browser(protected: Served, home: Path, cli: Cli) -> None:
    _login(cli, protected.url, *KNOWN, "--scope", "greet")
    code, out, err = cli("call", protected.url, "count", "to=3", "--json")
    assert (code, len(_visits(home))) == (3, 1)
    assert "error" in json.loads(out)
    assert f"trunkline auth login {protected.url}" in err


@pytest.mark.parametrize(
    ("given", "name"),
    [
        pytest.param(("--token", "wrong"), "token", id="token"),
        pytest.param(("--header", "authorization: Bearer wrong"), "Authorization header", id="header"),
    ],
)
def test_a_token_that_is_given_is_used_in_place_of_a_login(
    given: tuple[str, str], name: str, protected: Served, home: Path, cli: Cli
) -> None:
    _login(cli, protected.url, *KNOWN)
    code, _, err = cli("call", protected.url, "whoami", *given)
    assert code == 3
    assert f"the server rejected the {name}: " in err
    assert err.endswith(f"(check it, or pass another one with {given[0]})\n")


def test_logins_that_cannot_be_read_do_not_keep_a_command_from_its_work(home: Path, cli: Cli) -> None:
    (home / "home").mkdir()
    (home / "home" / "logins").write_bytes(b"nonsense that is long enough to be one")
    with serving(DEMO, "--http", "0") as served:
        code, out, err = cli("call", served.url, "echo", "text=hi")
    assert (code, out) == (0, "hi\n")
    assert "Cannot decrypt" in err


# --- list and logout -------------------------------------------------------------------------------------------------


def test_the_list_shows_what_is_kept_and_no_token(protected: Served, home: Path, cli: Cli) -> None:
    _login(cli, protected.url, *KNOWN, "--scope", "greet", "--scope", "count")
    code, out, err = cli("auth", "list")
    issuer = protected.url.removesuffix("/mcp")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["SERVER", "RESOURCE", "ISSUER", "SCOPES", "EXPIRES"]
    row = re.split(r" {2,}", out.splitlines()[1])
    assert row == [protected.url, protected.url, issuer, "greet count", "renewed automatically"]


@pytest.mark.parametrize(
    ("expires_at", "renewable", "shown"),
    [
        pytest.param(None, False, "unknown", id="unknown"),
        pytest.param(1.0, False, "expired", id="expired"),
        pytest.param(1.0, True, "renewed automatically", id="renewable"),
        pytest.param(4102444800.0, False, "2", id="a time"),
    ],
)
def test_the_list_shows_when_a_login_expires(
    expires_at: float | None, renewable: bool, shown: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    async def logins(owner: object) -> list[StoredLogin]:
        return [StoredLogin("https://a/mcp", "https://b", "https://a", "c", None, expires_at, renewable)]

    monkeypatch.setattr("trunkline.cli.logins.list_logins", logins)
    assert re.split(r" {2,}", cli("auth", "list").out.splitlines()[1])[-1].startswith(shown)


def test_an_empty_list_says_so(home: Path, cli: Cli) -> None:
    assert cli("auth", "list") == (
        0,
        "",
        "trunkline: no logins stored; to log in, run: trunkline auth login URL\n",
    )


@pytest.mark.parametrize("all_of_them", [False, True], ids=["one", "all"])
def test_after_a_logout_a_login_is_needed(all_of_them: bool, protected: Served, home: Path, cli: Cli) -> None:
    _login(cli, protected.url, *KNOWN)
    code, out, err = cli("auth", "logout", "--all" if all_of_them else protected.url)
    assert (code, err) == (0, "")
    assert out == f"logged out of {'1 server' if all_of_them else protected.url}\n"
    assert cli("auth", "list", "--json").out == '{\n  "logins": []\n}\n'
    assert cli("call", protected.url, "whoami").code == 3


def _kept_token(home: Path, url: str) -> str:
    """The token of the login that is kept for a URL."""
    login = asyncio.run(LoginStore(FileStore(home / "home" / "logins"), url, OAuth(client_id="known")).load())
    assert login is not None
    return login.tokens.access_token


@pytest.mark.parametrize(
    ("options", "code"), [pytest.param((), 3, id="taken back"), pytest.param(("--local",), 0, id="only forgotten")]
)
def test_a_logout_takes_the_tokens_back_unless_it_is_local(
    options: tuple[str, ...], code: int, protected: Served, home: Path, cli: Cli
) -> None:
    _login(cli, protected.url, *KNOWN)
    token = _kept_token(home, protected.url)
    assert cli("call", protected.url, "whoami", "--token", token).code == 0
    assert cli("auth", "logout", protected.url, *options).code == 0
    assert cli("call", protected.url, "whoami", "--token", token).code == code


def test_a_login_whose_server_is_away_is_forgotten_and_that_is_told(home: Path, cli: Cli) -> None:
    with _protected(_free_port()) as served:
        _login(cli, served.url, *KNOWN)
    code, out, err = cli("auth", "logout", served.url)
    assert (code, out) == (0, f"logged out of {served.url}\n")
    assert err.startswith(f"trunkline: {served.url}: deleted here, but not revoked: The authorization server")
    assert err.count("\n") == 1
    assert cli("auth", "list", "--json").out == '{\n  "logins": []\n}\n'


@pytest.mark.parametrize("what", ["https://mcp.example.com/mcp", "--all"])
def test_a_logout_without_a_login_is_no_failure(what: str, home: Path, cli: Cli) -> None:
    code, out, err = cli("auth", "logout", what)
    assert (code, out) == (0, "")
    assert err.startswith("trunkline: no login")


def test_a_list_that_cannot_be_read_is_code_3(home: Path, cli: Cli) -> None:
    (home / "home").mkdir()
    (home / "home" / "logins").write_bytes(b"nonsense that is long enough to be one")
    code, out, err = cli("auth", "list", "--json")
    assert code == 3
    assert "Cannot decrypt" in json.loads(out)["error"]["message"]
    assert err.count("\n") == 1


def test_without_a_pasted_address_login_waits_for_the_redirect(protected: Served, home: Path, cli: Cli) -> None:
    def end_input_and_visit(screen: str) -> str:
        threading.Thread(target=lambda: urlopen(_page(screen), timeout=SECONDS).close(), daemon=True).start()
        return "\x04"

    script = (("paste the address of that page here: ", end_input_and_visit),)
    code, screen = cli.at_a_terminal("auth", "login", protected.url, "--no-browser", script=script)
    assert code == 0
    assert f"logged in to {protected.url} at " in screen
