"""HTTP on the command line: ``run --http``, and URLs as targets of every other verb."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.support import DEMO, Cli, Served, serving
from tests.net.origins import make_certificate
from trunkline.protocol.revisions import REVISION_NAMES

IMPORT = "from trunkline import Server\n"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on, and nobody answers at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


# --- run -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_limits_of_callers_hold_until_a_signal_ends_the_server_with_code_0(number: signal.Signals) -> None:
    with serving(DEMO, "--http", "0", "--allowed-host", "mcp.example.com", "--rate-limit", "2/h") as served:
        assert [_status(served.url, "mcp.example.com") for _ in range(3)] == [200, 200, 429]
        assert served.stop(number) == (0, "", "")


def test_a_public_name_must_be_allowed(demo: Served) -> None:
    assert _status(demo.url, "mcp.example.com") == 403


def _status(url: str, host: str) -> int:
    """Ask by HTTP what the server offers, as a proxy would that keeps the name."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    headers = {"Host": host, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    try:
        with urlopen(Request(url, body, headers), timeout=120) as response:
            return int(response.status)
    except HTTPError as error:
        error.close()
        return error.code


def test_several_workers_say_how_long_what_they_share_is_kept(cli: Cli) -> None:
    with serving(DEMO, "--http", "0", "--workers", "2") as served:
        assert cli("call", served.url, "echo", "text=hi") == (0, "hi\n", "")
        said = served.next_line()
        assert "2 workers share sessions, handles and tasks until this process ends" in said
        assert served.stop(signal.SIGTERM)[0] == 0


def test_one_line_says_where_the_server_is_and_how_to_call_it(demo: Served) -> None:
    assert demo.line == f"trunkline: demo is served at {demo.url}; try: trunkline list tools {demo.url}\n"
    assert demo.url.startswith("http://127.0.0.1:")
    assert demo.url.endswith("/mcp")


@pytest.mark.parametrize(
    ("auth", "option"),
    [("StaticTokens", " --token TOKEN"), ("ApiKeys", " --header 'x-api-key: KEY'")],
)
def test_the_command_that_a_protected_server_prints_has_its_credentials(
    cli: Cli, tmp_path: Path, auth: str, option: str
) -> None:
    file = tmp_path / "server.py"
    file.write_text(f'from trunkline import {auth}, Server\nserver = Server("a", auth={auth}({{"right": "ada"}}))\n')
    with serving(str(file), "--http", "0") as served:
        command = served.line.partition("try: ")[2].strip()
        assert command == f"trunkline list tools {served.url}{option}"
        words = shlex.split(re.sub("TOKEN|KEY", "right", command))[1:]
        assert cli(*words) == (0, "", "trunkline: the server has no tools\n")


def test_a_path_may_be_given(cli: Cli) -> None:
    with serving(DEMO, "--http", "0", "--path", "/tools") as served:
        assert served.url.endswith("/tools")
        assert cli("call", served.url, "echo", "text=hi") == (0, "hi\n", "")


def test_what_the_file_says_about_its_address_holds_unless_another_is_given(guarded: Served) -> None:
    assert guarded.url.endswith("/own")


def test_the_first_command_for_a_server_with_tokens_has_one(guarded: Served) -> None:
    assert guarded.line.endswith(f"; try: trunkline list tools {guarded.url} --token TOKEN\n")


def test_the_oldest_transport_can_be_left_out(cli: Cli) -> None:
    with serving(DEMO, "--http", "0", "--no-sse") as served:
        code, _, _ = cli("list", "tools", f"{served.url}/sse", "--revision", "2024-11-05")
        assert code != 0


def test_the_oldest_transport_is_there(demo: Served, cli: Cli) -> None:
    called = cli("call", f"{demo.url}/sse", "echo", "text=hi", "--revision", "2024-11-05")
    assert called == (0, "hi\n", "")


def test_https_is_served_with_a_certificate(tmp_path: Path, cli: Cli) -> None:
    certificate = str(make_certificate(tmp_path / "certificate.pem", "localhost"))
    with serving(DEMO, "--http", "0", "--certfile", certificate, "--keyfile", certificate) as served:
        assert served.url.startswith("https://127.0.0.1:")
        named = served.url.replace("127.0.0.1", "localhost")
        assert cli("call", named, "echo", "text=hi", "--ca-file", certificate) == (0, "hi\n", "")
        code, _, err = cli("call", served.url, "echo", "text=hi")
        assert code == 4
        assert "certificate" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(("--http", "0.0.0.0:0"), "allow_unauthenticated=True", id="reachable by others"),
        pytest.param(
            ("--http", "no.such.host.invalid:0", "--allow-unauthenticated"), "is not known here", id="no such host"
        ),
        pytest.param(("--http", "99999"), "Invalid port 99999: use 0 to 65535", id="no such port"),
        pytest.param(("--http", "0", "--certfile", "/no/such.pem"), "/no/such.pem cannot be read", id="no certificate"),
        pytest.param(("--http", "0", "--certfile", DEMO), "does not hold a certificate", id="not a certificate"),
        pytest.param(("--http", "0", "--keyfile", DEMO), "needs a certificate", id="a key alone"),
        pytest.param(("--http", "0", "--path", "mcp"), 'a path must start with "/"', id="no path"),
        pytest.param(("--http", "0", "--allowed-host", "a b"), "allowed_hosts", id="no name"),
        pytest.param(("--http", "0", "--rate-limit", "often"), "rate_limit='often' is not a rate", id="no rate"),
    ],
)
def test_what_cannot_be_served_is_one_sentence_and_code_2(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "app.py").write_text(f"{IMPORT}server = Server('right')")
    code, out, err = cli("run", str(tmp_path / "app.py"), *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_one_sentence_and_code_2(taken: int, cli: Cli) -> None:
    code, out, err = cli("run", DEMO, "--http", str(taken))
    assert (code, out) == (2, "")
    assert err.startswith(f"trunkline: Port {taken} on 127.0.0.1 is in use by another program; ")
    assert err.count("\n") == 1


WITHOUT = """
import sys
sys.modules["uvicorn"] = None
from trunkline.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_missing_extra_is_one_sentence_and_code_2() -> None:
    arguments = [sys.executable, "-c", WITHOUT, "run", DEMO, "--http", "0"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "trunkline: Serving HTTP needs uvicorn; run: pip install 'trunkline[http]'\n"


def test_a_program_that_runs_its_server_itself_ends_with_code_2(taken: int, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"{IMPORT}Server('right').run('http', port={taken})")
    ended = subprocess.run(
        [sys.executable, tmp_path / "app.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"Port {taken} on 127.0.0.1 is in use" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param((DEMO, "--http", "app"), "'app' is not [HOST:]PORT", id="no address"),
        pytest.param(("--http", DEMO), "put --http without a value last", id="the file taken for an address"),
        pytest.param((DEMO, "--http", "::1:80"), "is not [HOST:]PORT", id="no brackets"),
        pytest.param((DEMO, "--path", "/x"), "--path needs --http", id="path"),
        pytest.param((DEMO, "--certfile", "x"), "--certfile needs --http", id="certfile"),
        pytest.param((DEMO, "--allowed-host", "x"), "--allowed-host needs --http", id="allowed host"),
        pytest.param((DEMO, "--allow-unauthenticated"), "--allow-unauthenticated needs --http", id="unauthenticated"),
        pytest.param((DEMO, "--no-sse"), "--no-sse needs --http", id="no sse"),
    ],
)
def test_options_of_http_that_make_no_sense_are_wrong_usage(
    arguments: tuple[str, ...], sentence: str, cli: Cli
) -> None:
    code, out, err = cli("run", *arguments)
    assert (code, out) == (1, "")
    assert sentence in err
    assert err.count("\n") == 1


# --- URLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["auto", *REVISION_NAMES])
def test_a_tool_behind_a_url_is_called(demo: Served, revision: str, cli: Cli) -> None:
    called = cli("call", demo.url, "add", "a=1", "--revision", revision)
    assert called == (0, "3\n", "")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(("--token", "right"), id="token"),
        pytest.param(("--header", "Authorization: Bearer right"), id="header"),
        pytest.param(("--header", "authorization:Bearer right", "--header", "X-Other: a: b"), id="several headers"),
    ],
)
def test_credentials_are_sent_as_given_on_the_command_line(given: tuple[str, ...], guarded: Served, cli: Cli) -> None:
    assert cli("call", guarded.url, "whoami", *given) == (0, "ada\n", "")


def test_a_token_may_come_from_a_file(guarded: Served, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "token").write_text("right\n")
    assert cli("call", guarded.url, "whoami", "--token", f"@{tmp_path / 'token'}") == (0, "ada\n", "")


@pytest.mark.parametrize(
    ("token", "told"),
    [((), "access denied by the server"), (("--token", "wrong"), "the server rejected the token")],
    ids=["no token", "a wrong token"],
)
def test_a_server_that_does_not_let_us_in_is_code_3(
    token: tuple[str, ...], told: str, guarded: Served, cli: Cli
) -> None:
    code, out, err = cli("call", guarded.url, "whoami", *token)
    assert (code, out) == (3, "")
    assert err.startswith(f"trunkline: {told}: ")
    assert err.count("\n") == 1


def test_a_server_with_a_token_and_no_login_is_not_to_be_logged_in_to_first(guarded: Served, cli: Cli) -> None:
    err = cli("call", guarded.url, "whoami").err
    assert "it names no login: pass its token with --token TOKEN or --token @FILE" in err


def test_an_unreachable_url_exits_with_code_4_and_says_what_to_do(cli: Cli) -> None:
    code, out, err = cli("list", "tools", "http://127.0.0.1:1/mcp")
    assert (code, out) == (4, "")
    assert err.startswith("trunkline: Cannot connect to 127.0.0.1:1: ")
    assert "nothing listens there: start the server, or check the port of the URL" in err


def test_a_server_that_never_answers_is_code_7(taken: int, cli: Cli) -> None:
    code, out, err = cli("list", "tools", f"http://127.0.0.1:{taken}/mcp", "--timeout", "0.3")
    assert (code, out) == (7, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(("http://", "--json"), 2, "is not a server URL", id="no host"),
        pytest.param(("http://user:pw@example.com/mcp",), 2, "user or password", id="a password in the URL"),
        pytest.param(("http://x/mcp", "--env", "A=b"), 1, "--env is for a server that is started", id="env"),
        pytest.param(("http://x/mcp", "--cwd", "/"), 1, "--cwd is for a server that is started", id="cwd"),
        pytest.param((DEMO, "--token", "t"), 1, "--token is for a URL", id="token"),
        pytest.param((DEMO, "--header", "A: b"), 1, "--header is for a URL", id="header"),
        pytest.param((DEMO, "--ca-file", DEMO), 1, "--ca-file is for a URL", id="ca file"),
        pytest.param(("http://x/mcp", "--header", "secret"), 1, "expected 'NAME: VALUE'", id="no name"),
        pytest.param(("http://x/mcp", "--header", ": b"), 1, "expected 'NAME: VALUE'", id="an empty name"),
        pytest.param(("http://x/mcp", "--header", "A: b", "--header", "a: c"), 1, "is given twice", id="twice"),
        pytest.param(("http://x/mcp", "--header", "Host: b"), 2, "set by the transport", id="a header of ours"),
        pytest.param(("http://x/mcp", "--token", "@/no/file"), 2, "/no/file", id="no token file"),
    ],
)
def test_an_invalid_url_is_reported_in_one_sentence(
    arguments: tuple[str, ...], code: int, sentence: str, cli: Cli
) -> None:
    ended = cli("list", "tools", *arguments)
    assert ended.code == code
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert "secret" not in ended.err
