"""Fetching: what is sent and returned, at which addresses, and within which limits."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.net.origins import Answer, always, answer, origin, redirect, serving
from tests.support import run_async
from trunkline.errors import ConfigError, FetchError
from trunkline.net import Fetcher, FetchResponse

# --- what is sent, and what comes back -------------------------------------------------------------------------------


async def test_an_answer_comes_with_status_headers_body_and_url() -> None:
    told = answer(b'{"a":1}', "Content-Type: application/json", "X-Two: 1", "x-two: 2", status=418)
    async with origin({"/doc": told}) as server, Fetcher(allow_loopback=True) as fetcher:
        got = await fetcher.fetch("GET", f"{server.url}/doc?q=1#part")
        assert got == FetchResponse(
            418,
            {"content-length": "7", "content-type": "application/json", "x-two": "1, 2"},
            b'{"a":1}',
            f"{server.url}/doc?q=1",
        )


async def test_a_request_has_its_headers_and_body_and_asks_for_no_compression() -> None:
    async with origin({"/token": answer(b"ok")}) as server:
        fetcher = Fetcher(allow_loopback=True, user_agent="mine/1")
        given = {"Authorization": "Bearer t", "Content-Type": "text/plain", "ACCEPT-ENCODING": "gzip"}
        await fetcher.fetch("post", f"{server.url}/token", headers=given, body=b"a=b")
    [got] = server.got
    assert (got.method, got.body, got.headers["host"]) == ("POST", b"a=b", f"127.0.0.1:{server.port}")
    names = ("authorization", "content-type", "user-agent", "accept-encoding")
    assert [got.headers.get(name) for name in names] == ["Bearer t", "text/plain", "mine/1", "identity"]
    assert not {"cookie", "referer"} & got.headers.keys()


async def test_a_path_and_query_arrive_as_they_were_written() -> None:
    async with origin() as server:
        fetcher = Fetcher(allow_loopback=True)
        await fetcher.fetch("GET", f"{server.url}/a%2Fb/../%7E/x y/\u00fc?u=a%3Db&v=+%20'\u00fc?/")
        await fetcher.fetch("GET", f"{server.url}?x")
    assert [got.path for got in server.got] == ["/a%2Fb/../%7E/x%20y/%C3%BC?u=a%3Db&v=+%20'%C3%BC?/", "/?x"]


async def test_a_head_request_has_no_body_and_no_wait_for_one() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nContent-Encoding: gzip\r\n\r\n"
    async with origin({"/": head}) as server:
        got = await Fetcher(allow_loopback=True).fetch("HEAD", server.url)
        assert (got.body, got.headers["content-length"]) == (b"", "99999999")


async def test_cookies_are_not_kept() -> None:
    cookie = answer(b"", "Location: /next", "Set-Cookie: a=b; Path=/", status=302)
    async with origin({"/": cookie, "/next": answer(b"ok")}) as server:
        await Fetcher(allow_loopback=True).fetch("GET", server.url)
    assert [got.headers.get("cookie") for got in server.got] == [None, None]


async def test_proxy_and_netrc_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")

    async with origin({"/": answer(b"ok")}) as server:
        got = await Fetcher(allow_loopback=True).fetch("GET", server.url)
    assert got.body == b"ok"
    assert "authorization" not in server.got[0].headers


async def test_a_header_with_a_line_break_is_not_sent() -> None:
    async with origin() as server:
        with pytest.raises(FetchError, match="Cannot send a request to 127"):
            await Fetcher(allow_loopback=True).fetch("GET", server.url, headers={"x": "a\r\nHost: b"})
    assert server.got == []


async def test_a_closed_fetcher_fetches_no_more() -> None:
    async with origin() as server:
        async with Fetcher(allow_loopback=True) as fetcher:
            await fetcher.fetch("GET", server.url)
        with pytest.raises(FetchError, match="closed"):
            await fetcher.fetch("GET", server.url)
    assert server.connections == 1


def test_one_fetcher_serves_one_event_loop_after_another() -> None:
    fetcher = Fetcher(allow_loopback=True)

    async def main() -> bytes:
        async with origin({"/": answer(b"ok")}) as server:
            return (await fetcher.fetch("GET", server.url)).body

    assert (run_async(main()), run_async(main())) == (b"ok", b"ok")


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "some.localhost", "LOCALHOST.", "127.0.0.1"])
@pytest.mark.parametrize("allowed", ["allow_private", "allow_loopback"])
async def test_the_names_of_this_machine_need_no_resolver(allowed: str, host: str) -> None:
    async def never(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    async with origin({"/": answer(b"ok")}) as server:
        fetcher = Fetcher(resolve=never, **{allowed: True})  # type: ignore[arg-type]
        assert (await fetcher.fetch("GET", f"http://{host}:{server.port}/")).body == b"ok"


@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1",), ("1.1.1.1", "127.0.0.1"), ("127.0.0.1", "1.1.1.1"), ("2600::1", "::ffff:127.0.0.1")],
    ids=["private", "public-first", "private-first", "mapped"],
)
async def test_one_private_address_of_a_name_is_enough_to_refuse_it(addresses: tuple[str, ...]) -> None:
    async with origin() as server:
        with pytest.raises(FetchError, match="not on the public Internet"):
            await Fetcher(resolve=always(*addresses)).fetch("GET", f"https://stranger.example:{server.port}/")
    assert server.connections == 0


async def test_a_name_is_resolved_once_and_the_connection_goes_to_that_answer(certificate: Path) -> None:
    turns = iter([["127.0.0.1"], ["127.0.0.2"]])

    async def rebind(host: str, port: int) -> list[str]:
        return next(turns)

    async with (
        origin({"/": answer(b"checked")}, certificate=certificate) as first,
        origin({"/": answer(b"swapped")}, certificate=certificate, host="127.0.0.2", port=first.port) as second,
    ):
        fetcher = Fetcher(allow_private=True, ca_file=str(certificate), resolve=rebind)
        got = await fetcher.fetch("GET", f"https://auth.example:{first.port}/")
        assert (got.body, second.connections) == (b"checked", 0)
    assert next(turns) == ["127.0.0.2"]


async def test_a_name_is_resolved_again_on_each_hop(certificate: Path) -> None:
    turns = iter([["127.0.0.1"], ["127.0.0.2"]])

    async def move(host: str, port: int) -> list[str]:
        return next(turns)

    async with (
        origin({"/": redirect("/next")}, certificate=certificate) as first,
        origin({"/next": answer(b"moved")}, certificate=certificate, host="127.0.0.2", port=first.port) as second,
    ):
        fetcher = Fetcher(allow_private=True, ca_file=str(certificate), resolve=move)
        got = await fetcher.fetch("GET", f"https://auth.example:{first.port}/")
    assert (got.body, first.connections, second.connections) == (b"moved", 1, 1)


async def test_tls_asks_for_and_checks_the_name_and_not_the_address(certificate: Path) -> None:
    async with origin({"/": answer(b"ok")}, certificate=certificate) as server:
        fetcher = Fetcher(allow_private=True, ca_file=str(certificate), resolve=always("127.0.0.1"))
        got = await fetcher.fetch("GET", f"https://auth.example.:{server.port}/")
        assert (got.body, server.names) == (b"ok", ["auth.example"])


async def test_a_certificate_for_another_name_is_rejected(other_certificate: Path) -> None:
    async with origin({"/": answer(b"ok")}, certificate=other_certificate) as server:
        fetcher = Fetcher(allow_private=True, ca_file=str(other_certificate), resolve=always("127.0.0.1"))
        with pytest.raises(FetchError, match=r"certificate of auth\.example:\d+ is not trusted: Hostname mismatch"):
            await fetcher.fetch("GET", f"https://auth.example:{server.port}/")
    assert server.got == []


async def test_a_certificate_of_an_unknown_authority_is_rejected(certificate: Path) -> None:
    async with origin({"/": answer(b"ok")}, certificate=certificate) as server:
        fetcher = Fetcher(allow_private=True, resolve=always("127.0.0.1"))
        with pytest.raises(FetchError, match="is not trusted: self-signed certificate"):
            await fetcher.fetch("GET", f"https://auth.example:{server.port}/")


async def test_a_name_without_an_address_is_reported() -> None:
    with pytest.raises(FetchError, match=r"stranger\.example has no address"):
        await Fetcher(resolve=always()).fetch("GET", "https://stranger.example/")


async def test_a_name_that_does_not_resolve_is_reported() -> None:
    async def fail(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(FetchError, match=r"stranger\.example cannot be resolved: Name or service not known"):
        await Fetcher(resolve=fail).fetch("GET", "https://stranger.example/")


async def test_the_system_resolver_is_asked_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*args: object, **options: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", ("10.1.2.3", 443)), (0, 0, 0, "", ("10.1.2.3", 443))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    with pytest.raises(FetchError, match=r"stranger\.example:443: 10\.1\.2\.3 is a private address"):
        await Fetcher().fetch("GET", "https://stranger.example/")


# --- bounds ----------------------------------------------------------------------------------------------------------


async def without_end(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        await writer.drain()


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def drip_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(5)


async def outcome(told: Answer, **bounds: float) -> FetchResponse:
    """Fetch this response within these limits."""
    async with origin({"/": told}) as server:
        return await Fetcher(allow_loopback=True).fetch("GET", server.url, **bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "told",
    [answer(b"x" * 1001), b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", without_end],
    ids=["one too many", "announced", "without end"],
)
async def test_an_answer_that_is_too_large_is_cut(told: Answer) -> None:
    with pytest.raises(FetchError, match=r"The response of 127\.0\.0\.1:\d+ is too large: the limit is 1000 bytes"):
        await outcome(told, max_bytes=1000)


async def test_an_answer_as_large_as_the_limit_is_taken() -> None:
    assert len((await outcome(answer(b"x" * 1000), max_bytes=1000)).body) == 1000


@pytest.mark.parametrize("told", [drip, drip_headers, silent], ids=["drips", "drips headers", "silent"])
async def test_an_answer_that_is_too_slow_is_cut(told: Answer) -> None:
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:\d+ took too long: the limit is 0\.3 seconds"):
        await outcome(told, seconds=0.3)


async def test_a_slow_resolver_is_within_the_time() -> None:
    async def slow(host: str, port: int) -> list[str]:
        await asyncio.sleep(5)
        return []

    with pytest.raises(FetchError, match=r"stranger\.example:443 took too long"):
        await Fetcher(resolve=slow).fetch("GET", "https://stranger.example/", seconds=0.05)


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    async with origin({"/": silent}) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await Fetcher(allow_loopback=True).fetch("GET", server.url)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "GZIP", "identity, gzip"])
async def test_a_compressed_answer_is_rejected(encoding: str) -> None:
    bomb = gzip.compress(b"\0" * 1000)
    with pytest.raises(FetchError, match=f"sent Content-Encoding {encoding.lower()!r}, which was not requested"):
        await outcome(answer(bomb, f"Content-Encoding: {encoding}"))


async def test_a_response_with_identity_encoding_is_accepted() -> None:
    assert (await outcome(answer(b"ok", "Content-Encoding: Identity"))).body == b"ok"


@pytest.mark.parametrize(
    "head", [b"X: " + b"y" * 100_000, b"\r\n".join([b"X: y"] * 1000)], ids=["a long header", "many headers"]
)
async def test_headers_that_are_too_large_are_cut(head: bytes) -> None:
    with pytest.raises(FetchError, match="sent an invalid HTTP response"):
        await outcome(b"HTTP/1.1 200 OK\r\n" + head + b"\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"obey me " * 2000 + b"\r\n\r\n", id="a long header"),
        pytest.param(b"HTTP/1.1 200 " + b"obey me " * 2000 + b"\r\n\r\n", id="a long reason"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: it's \0 obey me\r\n\r\n", id="a header with a null character"),
        pytest.param(b"HTTP/1.1 obey me\r\n\r\n", id="no status"),
    ],
)
async def test_the_error_for_an_invalid_response_does_not_quote_it(told: bytes) -> None:
    with pytest.raises(FetchError, match=r"sent an invalid HTTP response: [A-Z]") as caught:
        await outcome(told)
    assert "obey" not in str(caught.value)


# --- what the network does -------------------------------------------------------------------------------------------


async def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


BROKEN = [
    (b"SSH-2.0-server\r\n\r\n", "sent an invalid HTTP response"),
    (b"", "closed the connection before it answered"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "closed the connection in the middle of its response"),
    (reset, "broke: "),
]


@pytest.mark.parametrize(("told", "reason"), BROKEN, ids=["no HTTP", "nothing", "half", "reset"])
async def test_the_error_for_an_invalid_response_names_the_server(told: Answer, reason: str) -> None:
    with pytest.raises(FetchError, match=rf"127\.0\.0\.1:\d+.*{reason}"):
        await outcome(told)


async def test_a_server_that_is_not_there_is_reported() -> None:
    async with origin() as server:
        pass
    with pytest.raises(FetchError, match=r"Cannot connect to 127\.0\.0\.1:\d+: Connection refused"):
        await Fetcher(allow_loopback=True).fetch("GET", server.url)


async def test_a_server_without_tls_is_reported() -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")

    async with serving(hello) as port:
        with pytest.raises(FetchError, match=r"TLS with 127\.0\.0\.1:\d+ failed: "):
            await Fetcher(allow_loopback=True).fetch("GET", f"https://127.0.0.1:{port}/")


# --- settings --------------------------------------------------------------------------------------------------------


def test_a_certificate_file_that_is_not_there_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="ca_file='/nowhere'"):
        Fetcher(ca_file="/nowhere")


@pytest.mark.parametrize("proxy", ["socks5://proxy.example", "proxy.example:3128", "http://", "http://proxy:x"])
def test_a_proxy_that_makes_no_sense_is_a_wrong_setting(proxy: str) -> None:
    with pytest.raises(ConfigError, match="proxy= must be a URL"):
        Fetcher(proxy=proxy)


@asynccontextmanager
async def tunnel(to: int, asked: list[bytes], *, says: bytes = b"200 Connected") -> AsyncIterator[str]:
    """A proxy that connects everything to one port of this machine."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        there, back = await asyncio.open_connection("127.0.0.1", to)
        writer.write(b"HTTP/1.1 " + says + b"\r\n\r\n")
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            back.transport.abort()

    async with serving(serve) as port:
        yield f"http://127.0.0.1:{port}"


async def through_proxy(url: str, certificate: Path, asked: list[bytes], **told: bytes) -> FetchResponse:
    """Fetch a URL through a proxy in front of a server that has the certificate."""

    async def never(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    async with (
        origin({"/": answer(b"ok")}, certificate=certificate) as server,
        tunnel(server.port, asked, **told) as proxy,
    ):
        return await Fetcher(proxy=proxy, ca_file=str(certificate), resolve=never).fetch("GET", url)


async def test_a_proxy_resolves_the_name_and_tls_still_checks_it(certificate: Path) -> None:
    asked: list[bytes] = []
    assert (await through_proxy("https://auth.example/", certificate, asked)).body == b"ok"
    assert asked == [b"CONNECT auth.example:443 HTTP/1.1"]


REFUSED: Mapping[str, str] = {
    "https://169.254.169.254/": "a link-local address",
    "https://localhost/": "a loopback address",
    "http://auth.example/": "plain http",
}


@pytest.mark.parametrize("url", list(REFUSED))
async def test_a_rejected_url_is_not_sent_to_the_proxy(url: str, certificate: Path) -> None:
    asked: list[bytes] = []
    with pytest.raises(FetchError, match=REFUSED[url]):
        await through_proxy(url, certificate, asked)
    assert asked == []


async def test_a_proxy_that_rejects_is_reported(certificate: Path) -> None:
    with pytest.raises(FetchError, match=r"The proxy did not connect to auth\.example:443: 403 Forbidden"):
        await through_proxy("https://auth.example/", certificate, [], says=b"403 Forbidden")


async def test_a_proxy_that_is_not_there_is_reported() -> None:
    with pytest.raises(FetchError, match=r"Cannot connect to the proxy for auth\.example:443: Connection refused"):
        await Fetcher(proxy="http://127.0.0.1:1").fetch("GET", "https://auth.example/")


async def test_this_machine_is_not_called_through_a_proxy() -> None:
    async with origin({"/": answer(b"ok")}) as server:
        fetcher = Fetcher(allow_loopback=True, proxy="http://127.0.0.1:1")
        assert (await fetcher.fetch("GET", server.url)).body == b"ok"
