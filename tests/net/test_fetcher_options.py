"""Options of the fetcher for the open web: plain http, named hosts, truncated and compressed bodies, hop callbacks."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.net.origins import always, answer, origin, redirect
from tests.support import run_async
from trunkline.errors import FetchError
from trunkline.net import Fetcher

BOMB = gzip.compress(bytes(5_000_000))


async def _nowhere(host: str, port: int) -> Sequence[str]:
    raise OSError("no such name")


def test_plain_http_can_be_allowed_and_stays_guarded() -> None:
    fetcher = Fetcher(allow_http=True, resolve=always("10.0.0.1"))
    with pytest.raises(FetchError, match=r"10\.0\.0\.1 is a private address"):
        run_async(fetcher.fetch("GET", "http://names.example/"))


async def test_a_redirect_from_https_to_http_stays_rejected_where_http_is_allowed(certificate: Path) -> None:
    async with origin(certificate=certificate) as server:
        server.answers["/"] = redirect("http://auth.example/")
        fetcher = Fetcher(allow_http=True, allow_private=True, ca_file=str(certificate), resolve=always("127.0.0.1"))
        with pytest.raises(FetchError, match="from https to http"):
            await fetcher.fetch("GET", f"https://auth.example:{server.port}/", cross_origin=True)


@pytest.mark.parametrize("form", ["named.example", "named.example:{port}", "NAMED.example"])
async def test_a_named_host_may_have_any_address(form: str) -> None:
    async with origin({"/": answer(b"ok")}) as server:
        fetcher = Fetcher(allow_hosts=[form.format(port=server.port)], resolve=always("127.0.0.1"))
        assert (await fetcher.fetch("GET", f"http://Named.Example.:{server.port}/")).body == b"ok"


@pytest.mark.parametrize(
    "url", ["https://other.example/", "https://named.example:444/", "https://sub.named.example:443/"]
)
def test_another_host_or_port_is_not_named(url: str) -> None:
    fetcher = Fetcher(allow_hosts=["named.example:443"], resolve=always("127.0.0.1"))
    with pytest.raises(FetchError, match="loopback"):
        run_async(fetcher.fetch("GET", url))


async def test_before_hop_is_called_before_each_request() -> None:
    told: list[str] = []

    async def before(url: str) -> None:
        told.append(url.rpartition("/")[2])
        assert len(told) == 1, "second"

    async with origin({"/a": redirect("/b"), "/b": answer(b"")}) as server:
        with pytest.raises(AssertionError, match="second"):
            await Fetcher(allow_loopback=True).fetch("GET", f"{server.url}/a", before_hop=before)
        assert (len(server.got), told) == (1, ["a", "b"])


@pytest.mark.parametrize(("size", "read", "cut"), [(9, 9, False), (10, 10, False), (11, 10, True), (500_000, 10, True)])
async def test_a_body_can_be_cut_instead_of_refused(size: int, read: int, cut: bool) -> None:
    async with origin({"/": answer(b"x" * size)}) as server:
        got = await Fetcher(allow_loopback=True).fetch("GET", server.url, max_bytes=10, cut=True)
        assert (len(got.body), got.cut) == (read, cut)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"words", mtime=0)),
        ("x-gzip", gzip.compress(b"words", mtime=0)),
        ("deflate", zlib.compress(b"words")),
        ("identity", b"words"),
    ],
)
async def test_compressed_responses_are_decompressed_on_request(encoding: str, packed: bytes) -> None:
    async with origin({"/": answer(packed, f"Content-Encoding: {encoding}")}) as server:
        got = await Fetcher(allow_loopback=True).fetch("GET", server.url, gzip=True)
    assert server.got[0].headers["accept-encoding"] == "gzip"
    assert got.body == b"words"


@pytest.mark.parametrize(
    ("encoding", "packed", "message"),
    [
        pytest.param("gzip", BOMB, "too large: the limit is 20000 bytes", id="bomb"),
        pytest.param("gzip", b"no gzip", "cannot be decompressed", id="broken"),
        pytest.param("br", b"x", "not requested", id="other"),
        pytest.param("gzip, gzip", gzip.compress(BOMB), "not requested", id="twice"),
    ],
)
async def test_a_compressed_answer_is_rejected_if_it_is_too_large_or_not_what_was_asked_for(
    encoding: str, packed: bytes, message: str
) -> None:
    async with origin({"/": answer(packed, f"Content-Encoding: {encoding}")}) as server:
        with pytest.raises(FetchError, match=message):
            await Fetcher(allow_loopback=True).fetch("GET", server.url, gzip=True, max_bytes=20_000)


def test_a_decompression_bomb_is_truncated_at_the_limit() -> None:
    async def main() -> tuple[int, bool]:
        async with origin({"/": answer(BOMB, "Content-Encoding: gzip")}) as server:
            got = await Fetcher(allow_loopback=True).fetch("GET", server.url, gzip=True, cut=True, max_bytes=5000)
            return len(got.body), got.cut

    tracemalloc.start()
    try:
        assert run_async(main()) == (5000, True)
        # Decompressed at once it would take five megabytes.
        assert tracemalloc.get_traced_memory()[1] < 2_500_000
    finally:
        tracemalloc.stop()


def test_a_proxied_name_with_a_private_address_here_can_be_rejected() -> None:
    fetcher = Fetcher(proxy="http://127.0.0.1:1", resolve=always("192.168.0.1"), resolve_proxied=True)
    with pytest.raises(FetchError, match=r"192\.168\.0\.1 is a private address"):
        run_async(fetcher.fetch("GET", "https://names.example/"))


def test_a_proxied_name_that_is_not_known_here_is_left_to_the_proxy() -> None:
    fetcher = Fetcher(proxy="http://127.0.0.1:1", resolve=_nowhere, resolve_proxied=True)
    with pytest.raises(FetchError, match="Cannot connect to the proxy"):
        run_async(fetcher.fetch("GET", "https://names.example/"))
