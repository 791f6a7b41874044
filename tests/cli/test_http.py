"""HTTP on the command line: ``run --http``, and URLs as targets of every other verb."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import DEMO, GUARDED, Served, run, serving

IMPORT = "from trunkline import Server\n"


@pytest.fixture(scope="module")
def demo() -> Iterator[Served]:
    """The demo server over HTTP."""
    with serving(DEMO, "--http", "0") as served:
        yield served


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """A server that asks who calls, with an address of its own."""
    with serving(GUARDED, "--http") as served:
        yield served


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on, and nobody answers at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


# --- run -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_code_0(number: signal.Signals) -> None:
    with serving(DEMO, "--http", "0") as served:
        assert served.stop(number) == (0, "", "")


def test_several_workers_say_how_long_what_they_share_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(DEMO, "--http", "0", "--workers", "2") as served:
        assert run(capsys, "call", served.url, "echo", "text=hi") == (0, "hi\n", "")
        said = served.next_line()
        assert "2 workers share sessions, handles and tasks until this process ends" in said
        assert served.stop(signal.SIGTERM)[0] == 0


def test_workers_without_a_temporary_folder_say_what_they_need(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    command = [sys.executable, "-m", "trunkline", "run", str(DEMO), "--http", "0", "--workers", "2"]
    outcome = subprocess.run(
        command, env={**os.environ, "TMPDIR": str(long)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert outcome.returncode != 0
    assert "several workers need a temporary folder with a short path" in outcome.stderr
    assert list(long.iterdir()) == []


def test_one_line_says_where_the_server_is_and_how_to_call_it(demo: Served) -> None:
    assert demo.line == f"trunkline: demo is served at {demo.url}; try: trunkline list tools {demo.url}\n"
    assert demo.url.startswith("http://127.0.0.1:")
    assert demo.url.endswith("/mcp")


def test_the_line_names_an_address_that_can_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(DEMO, "--http", "0.0.0.0:0", "--allow-unauthenticated") as served:
        assert "(and every other address of this machine)" in served.line
        assert run(capsys, "call", served.url, "echo", "text=hi") == (0, "hi\n", "")


def test_a_path_may_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(DEMO, "--http", "0", "--path", "/tools") as served:
        assert served.url.endswith("/tools")
        assert run(capsys, "call", served.url, "echo", "text=hi") == (0, "hi\n", "")


def test_what_the_file_says_about_its_address_holds_unless_another_is_given(guarded: Served) -> None:
    assert guarded.url.endswith("/own")


def test_the_oldest_transport_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(DEMO, "--http", "0", "--no-sse") as served:
        code, _, _ = run(capsys, "list", "tools", f"{served.url}/sse", "--revision", "2024-11-05")
        assert code != 0


def test_the_oldest_transport_is_there(demo: Served, capsys: pytest.CaptureFixture[str]) -> None:
    called = run(capsys, "call", f"{demo.url}/sse", "echo", "text=hi", "--revision", "2024-11-05")
    assert called == (0, "hi\n", "")


def test_a_public_name_must_be_allowed(demo: Served) -> None:
    with serving(DEMO, "--http", "0", "--allowed-host", "mcp.example.com") as served:
        assert _status(served.url, "mcp.example.com") == 200
    assert _status(demo.url, "mcp.example.com") == 403


def test_a_caller_that_calls_too_often_is_refused() -> None:
    with serving(DEMO, "--http", "0", "--rate-limit", "2/h") as served:
        assert [_status(served.url, "127.0.0.1") for _ in range(3)] == [200, 200, 429]


def _status(url: str, host: str) -> int:
    """Ask by HTTP what the server offers, as a proxy would that keeps the name."""
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=10)
    headers = {"Host": host, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    told = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    connection.request(
        "POST",
        parts.path,
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": told}),
        headers,
    )
    status = connection.getresponse().status
    connection.close()
    return status


def test_https_is_served_with_a_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = _make_certificate(tmp_path)
    with serving(DEMO, "--http", "0", "--certfile", certificate, "--keyfile", key) as served:
        assert served.url.startswith("https://127.0.0.1:")
        assert run(capsys, "call", served.url, "echo", "text=hi", "--ca-file", certificate) == (0, "hi\n", "")
        code, _, err = run(capsys, "call", served.url, "echo", "text=hi")
        assert code == 4
        assert "certificate" in err


def _make_certificate(folder: Path) -> tuple[str, str]:
    """Make a certificate for 127.0.0.1 that nobody else has signed."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, open_key = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, open_key))
    assert ssl.create_default_context(cafile=folder / "cert.pem")
    return str(folder / "cert.pem"), str(folder / "key.pem")


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
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(f"{IMPORT}server = Server('right')")
    code, out, err = run(capsys, "run", str(tmp_path / "app.py"), *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_one_sentence_and_code_2(taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "run", DEMO, "--http", str(taken))
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
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "trunkline: Serving HTTP needs uvicorn; run: pip install 'trunkline[http]'\n"


def test_a_program_that_runs_its_server_itself_ends_with_code_2(taken: int, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"{IMPORT}Server('right').run('http', port={taken})")
    ended = subprocess.run(
        [sys.executable, tmp_path / "app.py"], capture_output=True, text=True, timeout=20, check=False
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
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "run", *arguments)
    assert (code, out) == (1, "")
    assert sentence in err
    assert err.count("\n") == 1


# --- URLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["auto", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_a_tool_behind_a_url_is_called(demo: Served, revision: str, capsys: pytest.CaptureFixture[str]) -> None:
    called = run(capsys, "call", demo.url, "add", "a=1", "--revision", revision)
    assert called == (0, "3\n", "")


def test_a_server_behind_a_url_is_listed(demo: Served, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "tools", demo.url, "-v")
    assert (code, err) == (0, "connected to demo 1.0.0, revision 2026-07-28\n")
    assert "Add two numbers." in out


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(("read", "URL", "note://x/page"), "page of x", id="read"),
        pytest.param(("get", "URL", "greet", "name=Ada"), "Ada, short", id="get"),
        pytest.param(("complete", "URL", "greet", "name", "b"), "bob", id="complete"),
        pytest.param(("listen", "URL", "--tools", "--for", "0.2"), "", id="listen"),
    ],
)
def test_every_verb_takes_a_url(
    arguments: tuple[str, ...], shown: str, demo: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *(demo.url if word == "URL" else word for word in arguments))
    assert (code, err) == (0, "")
    assert shown in out


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(("--token", "right"), id="token"),
        pytest.param(("--header", "Authorization: Bearer right"), id="header"),
        pytest.param(("--header", "authorization:Bearer right", "--header", "X-Other: a: b"), id="several headers"),
    ],
)
def test_credentials_are_sent_as_given_on_the_command_line(
    given: tuple[str, ...], guarded: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "call", guarded.url, "whoami", *given) == (0, "ada\n", "")


def test_a_token_may_come_from_a_file(guarded: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("right\n")
    assert run(capsys, "call", guarded.url, "whoami", "--token", f"@{tmp_path / 'token'}") == (0, "ada\n", "")


@pytest.mark.parametrize("token", [(), ("--token", "wrong")], ids=["no token", "a wrong token"])
def test_a_server_that_does_not_let_us_in_is_code_3(
    token: tuple[str, ...], guarded: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "call", guarded.url, "whoami", *token)
    assert (code, out) == (3, "")
    assert err.startswith("trunkline: access denied by the server: ")
    assert err.count("\n") == 1


def test_a_server_with_a_token_and_no_login_is_not_to_be_logged_in_to_first(
    guarded: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    err = run(capsys, "call", guarded.url, "whoami").err
    assert "it names no login: pass its token with --token TOKEN or --token @FILE" in err


def test_an_unreachable_url_exits_with_code_4_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "tools", "http://127.0.0.1:1/mcp")
    assert (code, out) == (4, "")
    assert err.startswith("trunkline: Cannot connect to 127.0.0.1:1: ")
    assert "nothing listens there: start the server, or check the port of the URL" in err


def test_an_error_behind_a_url_is_code_5(demo: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "call", demo.url, "nothing").code == 5


def test_a_server_that_never_answers_is_code_7(taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "tools", f"http://127.0.0.1:{taken}/mcp", "--timeout", "0.3")
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
    arguments: tuple[str, ...], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run(capsys, "list", "tools", *arguments)
    assert ended.code == code
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert "secret" not in ended.err
