"""Attacks by pages, redirects and host names: internal addresses, and responses without end."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import Sequence

import pytest

from servers.tests.fetch.calls import fetch_with, prompt
from tests.net.origins import always, answer, origin, redirect
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline_servers.fetch import make_server
from trunkline_servers.fetch.markdown import html_to_markdown

TEXT = "Content-Type: text/plain"
# One of each kind of rule; every spelling of an address is in tests/net.
FORBIDDEN = [
    "http://127.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://sub.localhost/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "http://93.184.216.34@127.0.0.1/",
    "http://93.184.216.34:0/",
    "file:///etc/passwd",
]


async def _never(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was resolved")


@pytest.mark.parametrize("url", FORBIDDEN)
def test_no_form_of_a_forbidden_address_is_fetched(url: str) -> None:
    with pytest.raises(ToolError, match="Will not fetch"):
        run_async(fetch_with(make_server(resolve=_never), url))


async def test_the_prompt_is_guarded_too() -> None:
    assert (await prompt(make_server(resolve=_never), "http://127.0.0.1/")).startswith(
        "Will not fetch from 127.0.0.1:80"
    )


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_no_redirect_leads_to_a_forbidden_address(url: str) -> None:
    async with origin() as site:
        site.answers["/"] = redirect(url)
        server = make_server(allow_hosts=[f"open.example:{site.port}"], resolve=always("127.0.0.1"))
        with pytest.raises(ToolError, match="Will not fetch"):
            await fetch_with(server, f"http://open.example:{site.port}/")
    assert [got.path for got in site.got] == ["/robots.txt", "/"]


async def test_a_redirect_to_a_listener_on_this_machine_never_reaches_it() -> None:
    async with origin({"/": answer(b"secret", TEXT)}) as canary, origin() as site:
        site.answers["/"] = redirect(f"http://rebound.example:{canary.port}/")
        server = make_server(allow_hosts=[f"open.example:{site.port}"], resolve=always("127.0.0.1"))
        with pytest.raises(ToolError, match="not on the public Internet"):
            await fetch_with(server, f"http://open.example:{site.port}/")
        assert canary.connections == 0


async def test_a_name_is_resolved_once_for_a_hop_and_the_answer_is_kept_to() -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    async with origin({"/t": answer(b"first", TEXT)}) as site:
        where = f"open.example:{site.port}"
        server = make_server(allow_hosts=[where], resolve=rebinding, ignore_robots_txt=True)
        assert (await fetch_with(server, f"http://{where}/t")).endswith("first")
    assert asked == ["open.example"]


async def test_a_name_that_changes_its_address_between_two_hops_is_checked_at_each() -> None:
    answers = [["127.0.0.1"], ["127.0.0.1"], ["169.254.169.254"]]

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with origin() as site:
        site.answers["/a"] = redirect(f"http://other.example:{site.port}/b")
        server = make_server(allow_hosts=[f"open.example:{site.port}"], resolve=rebinding)
        with pytest.raises(ToolError, match=r"169\.254\.169\.254 is a link-local address"):
            await fetch_with(server, f"http://open.example:{site.port}/a")


async def test_a_robots_txt_that_redirects_inside_is_not_followed_and_the_page_not_fetched() -> None:
    async with origin() as canary, origin({"/p": answer(b"x", TEXT)}) as site:
        site.answers["/robots.txt"] = redirect(f"http://localhost:{canary.port}/")
        server = make_server(allow_hosts=[f"127.0.0.1:{site.port}"])
        with pytest.raises(ToolError, match=r"robots\.txt of the site must be read .* not on the public Internet"):
            await fetch_with(server, f"{site.url}/p")
    assert ([got.path for got in site.got], canary.connections) == (["/robots.txt"], 0)


async def test_an_allowed_host_allows_no_other_port_and_no_other_host() -> None:
    async with origin() as canary, origin() as site:
        server = make_server(allow_hosts=[f"127.0.0.1:{site.port}"])
        with pytest.raises(ToolError, match="loopback"):
            await fetch_with(server, canary.url)
        with pytest.raises(ToolError, match="loopback"):
            await fetch_with(server, f"http://127.0.0.2:{site.port}/")
        assert canary.connections == 0


# --- answers without an end ------------------------------------------------------------------------------------------

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
_MEGABYTES = 200


async def test_a_body_of_200_megabytes_is_cut_at_the_limit() -> None:
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(_HEAD + f"Content-Length: {_MEGABYTES * 1024 * 1024}\r\n\r\n".encode())
        for _ in range(_MEGABYTES * 16):
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with origin({"/big": flood}) as site:
        server = make_server(allow_local=True, max_bytes=100_000)
        text = await fetch_with(server, f"{site.url}/big", max_length=999_999)
    assert text.startswith("Only the first 100000 bytes were read, which is the limit.\n")
    assert (text.count("x" * 1000), sent < 50 * 1024 * 1024) == (100, True)


async def test_a_body_that_trickles_is_ended_by_the_clock() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(_HEAD + b"Content-Length: 1000\r\n\r\nx")
        await asyncio.Event().wait()

    async with origin({"/slow": trickle}) as site:
        with pytest.raises(ToolError, match=r"took too long: the limit is 0\.2 seconds"):
            await fetch_with(make_server(allow_local=True, seconds=0.2), f"{site.url}/slow")


async def test_calls_that_are_cancelled_make_room_for_others() -> None:
    asked = asyncio.Semaphore(0)

    async def silent(writer: asyncio.StreamWriter) -> None:
        asked.release()
        await asyncio.Event().wait()

    async with (
        origin({"/silent": silent, "/p": answer(b"words", TEXT)}) as site,
        Client(make_server(allow_local=True, seconds=600)) as client,
    ):
        urls = [f"{site.url}/silent"] * 16
        calls = [asyncio.ensure_future(client.call_tool("fetch", {"url": url})) for url in urls]
        await asyncio.gather(*(asked.acquire() for _ in calls))
        waiting = asyncio.ensure_future(client.call_tool("fetch", {"url": f"{site.url}/p"}))
        assert [call.cancel() for call in calls] == [True] * 16
        assert (await waiting).text.endswith("\nwords")


async def test_a_decompression_bomb_is_unpacked_up_to_the_limit_only() -> None:
    bomb = gzip.compress(bytes(8_000_000).replace(b"\0", b"x"), 9)
    async with origin({"/bomb": answer(bomb, TEXT, "Content-Encoding: gzip")}) as site:
        server = make_server(allow_local=True, max_bytes=100_000)
        text = await fetch_with(server, f"{site.url}/bomb", max_length=999_999)
    assert (text.startswith("Only the first 100000 bytes"), len(text) < 100_200) == (True, True)


# Each would take many minutes if something were searched for again and again, and the test would not end in time.
_SCANNED = ["<!--", "<!---", "<a ", "<a b='", "<a =", "<a /", "<![CDATA[", "</", "<?", "&", "<", "&#99999999999"]
_SCANNED += ["<script>", "<title>", "<x", "&amp"]
_NESTED = ["<div>", "<ul><li>", "<blockquote><pre>\n", "<table><tr><td>", "<b><table>", "<header><form>", "</b>"]
_NESTED += ["<a href=x><table><tr><td>", "<p>" + "<b>" * 11]
_SIDE_BY_SIDE = ["<a href=x><div>x</div></a>", "<p>x", "<td>x", "<li><b>x", "<a href=?>x", "<img src=// alt=x>"]
_SIDE_BY_SIDE += ["<tr><td colspan=9>", "<dt>x<dd>x", "<p class='a-b' style='display:'>", "<header><h1></h1></header>"]


@pytest.mark.parametrize(
    ("pieces", "size"),
    [(_SCANNED, 1_000_000), ((*_NESTED, *_SIDE_BY_SIDE), 60_000)],
    ids=["scanned", "nested-or-side-by-side"],
)
def test_no_markup_takes_more_than_linear_time(pieces: Sequence[str], size: int) -> None:
    pages = [html_to_markdown(piece * (size // len(piece)), "http://x.example/", max_chars=size) for piece in pieces]
    assert [piece for piece, page in zip(pieces, pages, strict=True) if len(page.text) > size] == []


def test_a_base_with_many_folders_does_not_make_each_link_cost_all_of_them() -> None:
    page = f"<base href='/{'a/' * 990}'>" + "<a href=../y>x</a> <a href=/z>y</a> " * 2000
    text = html_to_markdown(page, "http://x.example/", max_chars=10_000_000).text
    assert text.startswith("x [y](http://x.example/z) x ")


def test_brackets_in_links_in_links_are_not_escaped_again_and_again() -> None:
    text = html_to_markdown("<a href=/x><table><tr><td>" * 30 + "[" * 200, "http://x.example/", max_chars=10_000).text
    assert text == "[" + r"\[" * 200 + "](http://x.example/x)"


def test_many_links_to_a_long_base_do_not_fill_the_memory() -> None:
    page = "<p>" + "<a href=x>x</a> " * 1000
    tracemalloc.start()
    try:
        made = html_to_markdown(page, f"http://x.example/{'a' * 7000}/", max_chars=100_000)
        # All of the links together have seven megabytes.
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
    assert (made.is_whole, len(made.text) <= 100_000) == (False, True)


@pytest.mark.parametrize(
    ("piece", "read"),
    [
        pytest.param("<p>x", 333, id="elements"),
        pytest.param("<b>x</b>", 250, id="elements-that-end"),
        pytest.param("<a href=x>x</a>", 166, id="attributes"),
        pytest.param("<a href=x a b c d e f g>x</a>", 125, id="many-attributes"),
        pytest.param("x</b>", 1001, id="ends"),
        pytest.param("x<!-->", 1001, id="comments"),
        pytest.param("x&lt&lt&lt&lt<!>", 501, id="references"),
        pytest.param("x<title></title>", 251, id="elements-without-markup"),
    ],
)
def test_a_page_with_too_much_markup_is_read_in_part(piece: str, read: int) -> None:
    made = html_to_markdown(piece * 1200, "http://x.example/", max_chars=100_000, max_work=1000)
    assert made.text.replace("x.example/x", "").count("x") == read
    assert not made.is_whole


def test_a_page_that_is_just_as_much_as_may_be_is_whole() -> None:
    assert html_to_markdown("<p>x</p><b>y</b>", "http://x.example/", max_chars=100, max_work=7).is_whole


def test_a_text_with_more_references_than_are_read_keeps_the_others_as_they_are() -> None:
    made = html_to_markdown("&lt;" * 100_002, "http://x.example/", max_chars=10_000_000)
    assert made.text == "<" * 100_000 + "&lt;&lt;"


def test_links_of_an_unusual_form_are_made_so_many_times_and_no_more() -> None:
    made = html_to_markdown("<p><a href=?q>link</a></p>" * 6000, "http://x.example/", max_chars=1_000_000)
    assert (made.is_whole, made.text.count("[link]"), made.text.count("link")) == (False, 5000, 6000)


def test_a_page_of_usual_size_is_read_whole() -> None:
    item = '<div class="item"><p>Some words of a text, and <a href="/more">more</a>.</p></div>'
    assert html_to_markdown(item * 10_000, "http://x.example/", max_chars=10_000_000).is_whole


async def test_an_answer_says_that_not_all_of_a_page_was_read() -> None:

    expected = "Not all of the page was read: it has too much markup, or its text is too long.\nContents of"
    async with origin({"/p": answer(b"<a href=x>x" * 80, "Content-Type: text/html")}) as site:
        assert (
            await fetch_with(make_server(allow_local=True, max_bytes=1000), f"{site.url}/p", max_length=10)
        ).startswith(expected)


async def test_a_type_of_bytes_that_are_no_text_is_still_an_answer() -> None:
    odd = b"HTTP/1.1 200 Reason\r\nContent-Length: 1\r\nContent-Type: text/\xff\xfe\r\n\r\nx"
    async with origin({"/odd": odd}) as site:
        assert "Content of type text/\ufffd\ufffd, not turned into Markdown:\n" in await fetch_with(
            make_server(allow_local=True), f"{site.url}/odd"
        )


def test_lines_in_many_quotes_do_not_grow_beyond_the_limit() -> None:
    text = html_to_markdown(
        "<blockquote>" * 90 + "<pre>" + "x\n" * 100_000, "http://x.example/", max_chars=200_000
    ).text
    assert 150_000 < len(text) <= 200_000
