"""Attacks by pages, redirects and host names: internal addresses, and responses without end."""

from __future__ import annotations

import asyncio
import gzip
import time
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
# Forms of addresses of this machine, of private networks and of clouds' own services.
FORBIDDEN = [
    "http://127.0.0.1/",
    "http://127.0.0.2:8080/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://sub.localhost/",
    "http://127.0.0.1./",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::1]/",
    "http://[2001:0:7f00:1::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.100.100.200/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://\u2460\u2461\u2466.0.0.1/",
    "http://127\u30020.0.1/",
    "http://user:secret@93.184.216.34/",
    "http://93.184.216.34@127.0.0.1/",
    "http://127.0.0.1\\@93.184.216.34/",
    "http://93.184.216.34:0/",
    "file:///etc/passwd",
    "ftp://93.184.216.34/",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "data:text/plain,x",
]


async def _never(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was resolved")


@pytest.mark.parametrize("url", FORBIDDEN)
def test_no_form_of_a_forbidden_address_is_fetched(url: str) -> None:
    with pytest.raises(ToolError, match="Will not fetch"):
        run_async(fetch_with(make_server(resolve=_never), url))


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://[::ffff:169.254.169.254]/", "file:///etc/passwd"])
def test_the_prompt_is_guarded_too(url: str) -> None:
    assert run_async(prompt(make_server(resolve=_never), url)).startswith("Will not fetch")


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:10.0.0.1"],
        ["64:ff9b::a00:1"],
        ["2002:a00:1::1"],
        ["fd00::1"],
        ["93.184.216.34", "127.0.0.1"],
    ],
    ids=" ".join,
)
def test_a_name_with_a_forbidden_address_is_not_fetched(addresses: list[str]) -> None:
    server = make_server(resolve=always(*addresses), ignore_robots_txt=True)
    with pytest.raises(ToolError, match="not on the public Internet"):
        run_async(fetch_with(server, "http://names.example/"))


@pytest.mark.parametrize("url", [url for url in FORBIDDEN if url.isascii()])
async def test_no_redirect_leads_to_a_forbidden_address(url: str) -> None:
    async with origin() as site:
        site.answers["/"] = redirect(url)
        server = make_server(allow_hosts=[f"open.example:{site.port}"], resolve=always("127.0.0.1"))
        with pytest.raises(ToolError, match="Will not fetch"):
            await fetch_with(server, f"http://open.example:{site.port}/")
    assert [got.path for got in site.got] == ["/robots.txt", "/"]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "rebound.example"])
def test_a_redirect_to_a_listener_on_this_machine_never_reaches_it(name: str) -> None:
    async def main() -> int:
        async with origin({"/": answer(b"secret", TEXT)}) as canary, origin() as site:
            site.answers["/"] = redirect(f"http://{name}:{canary.port}/")
            server = make_server(allow_hosts=[f"open.example:{site.port}"], resolve=always("127.0.0.1"))
            with pytest.raises(ToolError, match="not on the public Internet"):
                await fetch_with(server, f"http://open.example:{site.port}/")
            return canary.connections

    assert run_async(main()) == 0


def test_a_name_is_resolved_once_for_a_hop_and_the_answer_is_kept_to() -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    async def main() -> str:
        async with origin({"/t": answer(b"first", TEXT)}) as site:
            where = f"open.example:{site.port}"
            server = make_server(allow_hosts=[where], resolve=rebinding, ignore_robots_txt=True)
            return await fetch_with(server, f"http://{where}/t")

    assert run_async(main()).endswith("first")
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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_robots_txt_that_redirects_inside_is_not_followed_and_the_page_not_fetched(status: int) -> None:
    async with origin() as canary, origin({"/p": answer(b"x", TEXT)}) as site:
        site.answers["/robots.txt"] = redirect(f"http://localhost:{canary.port}/", status)
        server = make_server(allow_hosts=[f"127.0.0.1:{site.port}"])
        with pytest.raises(ToolError, match=r"robots\.txt of the site must be read .* not on the public Internet"):
            await fetch_with(server, f"{site.url}/p")
    assert ([got.path for got in site.got], canary.connections) == (["/robots.txt"], 0)


def test_an_allowed_host_allows_no_other_port_and_no_other_host() -> None:
    async def main() -> int:
        async with origin() as canary, origin() as site:
            server = make_server(allow_hosts=[f"127.0.0.1:{site.port}"])
            with pytest.raises(ToolError, match="loopback"):
                await fetch_with(server, canary.url)
            with pytest.raises(ToolError, match="loopback"):
                await fetch_with(server, f"http://127.0.0.2:{site.port}/")
            return canary.connections

    assert run_async(main()) == 0


# --- answers without an end ------------------------------------------------------------------------------------------

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
_MEGABYTES = 200


def test_a_body_of_200_megabytes_is_cut_at_the_limit() -> None:
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(_HEAD + f"Content-Length: {_MEGABYTES * 1024 * 1024}\r\n\r\n".encode())
        for _ in range(_MEGABYTES * 16):
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async def main() -> str:
        async with origin({"/big": flood}) as site:
            server = make_server(allow_local=True, max_bytes=100_000)
            return await fetch_with(server, f"{site.url}/big", max_length=999_999)

    text = run_async(main())
    assert text.startswith("Only the first 100000 bytes were read, which is the limit.\n")
    assert (text.count("x" * 1000), sent < 50 * 1024 * 1024) == (100, True)


async def test_a_body_that_trickles_is_ended_by_the_clock() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(_HEAD + b"Content-Length: 1000\r\n\r\nx")
        await asyncio.Event().wait()

    async with origin({"/slow": trickle}) as site:
        with pytest.raises(ToolError, match=r"took too long: the limit is 0\.2 seconds"):
            await fetch_with(make_server(allow_local=True, seconds=0.2), f"{site.url}/slow")


def test_calls_that_are_cancelled_make_room_for_others() -> None:
    async def main() -> str:
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
            return (await waiting).text

    assert run_async(main()).endswith("\nwords")


async def test_a_robots_txt_that_never_comes_is_ended_by_the_same_clock() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with origin({"/robots.txt": silent}) as site:
        with pytest.raises(ToolError, match=r"took too long"):
            await fetch_with(make_server(allow_local=True, seconds=0.2), f"{site.url}/p")


def test_a_decompression_bomb_is_unpacked_up_to_the_limit_only() -> None:
    bomb = gzip.compress(bytes(8_000_000).replace(b"\0", b"x"), 9)

    async def main() -> str:
        async with origin({"/bomb": answer(bomb, TEXT, "Content-Encoding: gzip")}) as site:
            server = make_server(allow_local=True, max_bytes=100_000)
            return await fetch_with(server, f"{site.url}/bomb", max_length=999_999)

    text = run_async(main())
    assert (text.startswith("Only the first 100000 bytes"), len(text) < 100_200) == (True, True)


@pytest.mark.parametrize("behind", [b"", b"\0\0padding", b"\x1f"], ids=["nothing", "padding", "half-a-begin"])
def test_a_body_of_several_compressed_parts_is_read_whole(behind: bytes) -> None:
    parts = [gzip.compress(b"one "), gzip.compress(b""), gzip.compress(b"two "), gzip.compress(b"three"), behind]

    async def byte_by_byte(writer: asyncio.StreamWriter) -> None:
        body = b"".join(parts)
        writer.write(_HEAD + f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for place in range(len(body)):
            writer.write(body[place : place + 1])
            await writer.drain()
            await asyncio.sleep(0)

    async def main() -> str:
        async with origin({"/parts": byte_by_byte}) as site:
            return await fetch_with(make_server(allow_local=True), f"{site.url}/parts")

    assert run_async(main()).endswith("\none two three")


def test_parts_that_each_unpack_to_little_are_bounded_together() -> None:
    bomb = gzip.compress(b"x" * 10_000) * 100

    async def main() -> str:
        async with origin({"/bomb": answer(bomb, TEXT, "Content-Encoding: gzip")}) as site:
            server = make_server(allow_local=True, max_bytes=100_000)
            return await fetch_with(server, f"{site.url}/bomb", max_length=999_999)

    assert run_async(main()).count("x" * 1000) == 100


async def test_an_answer_that_unpacks_to_nothing_for_ever_is_ended() -> None:
    async def empty(writer: asyncio.StreamWriter) -> None:
        writer.write(_HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10])
        while True:
            # Blocks of no bytes.
            writer.write(b"\0\0\0\xff\xff" * 10_000)
            await writer.drain()

    async with origin({"/": empty}) as site:
        with pytest.raises(ToolError, match="more than 65536 bytes that decompress to nothing"):
            await fetch_with(make_server(allow_local=True, max_bytes=100_000), site.url)


async def test_an_answer_of_very_many_compressed_parts_is_refused() -> None:
    async with origin({"/": answer(gzip.compress(b"") * 1001, TEXT, "Content-Encoding: gzip")}) as site:
        with pytest.raises(ToolError, match="more than 1000 gzip members"):
            await fetch_with(make_server(allow_local=True), site.url)


async def test_a_nested_bomb_stays_compressed_and_is_not_text() -> None:
    bomb = gzip.compress(gzip.compress(bytes(1_000_000)))

    async with origin({"/bomb": answer(bomb, TEXT, "Content-Encoding: gzip")}) as site:
        with pytest.raises(ToolError, match="'application/gzip'"):
            await fetch_with(make_server(allow_local=True), f"{site.url}/bomb")


# Each would take far longer than it may if something were searched for again and again.
_SCANNED = ["<!--", "<!---", "<a ", "<a b='", "<a =", "<a /", "<![CDATA[", "</", "<?", "&", "<", "&#99999999999"]
_SCANNED += ["<script>", "<title>", "<x", "&amp"]
_NESTED = ["<div>", "<ul><li>", "<blockquote><pre>\n", "<table><tr><td>", "<b><table>", "<header><form>", "</b>"]
_NESTED += ["<a href=x><table><tr><td>", "<p>" + "<b>" * 11]
_SIDE_BY_SIDE = ["<a href=x><div>x</div></a>", "<p>x", "<td>x", "<li><b>x", "<a href=?>x", "<img src=// alt=x>"]
_SIDE_BY_SIDE += ["<tr><td colspan=9>", "<dt>x<dd>x", "<p class='a-b' style='display:'>", "<header><h1></h1></header>"]


@pytest.mark.parametrize(
    ("piece", "size"),
    [
        *[pytest.param(piece, 2_000_000, id=piece) for piece in _SCANNED],
        *[pytest.param(piece, 60_000, id=piece) for piece in (*_NESTED, *_SIDE_BY_SIDE)],
    ],
)
def test_no_markup_takes_more_than_linear_time(piece: str, size: int) -> None:
    began = time.thread_time()
    text = html_to_markdown(piece * (size // len(piece)), "http://x.example/", max_chars=2_000_000).text
    assert len(text) <= 2_000_000
    assert time.thread_time() - began < 5.0


def test_a_base_with_many_folders_does_not_make_each_link_cost_all_of_them() -> None:
    page = f"<base href='/{'a/' * 990}'>" + "<a href=../y>x</a> <a href=/z>y</a> " * 2000
    began = time.thread_time()
    text = html_to_markdown(page, "http://x.example/", max_chars=10_000_000).text
    assert text.startswith("x [y](http://x.example/z) x ")
    assert time.thread_time() - began < 5.0


def test_brackets_in_links_in_links_are_not_escaped_again_and_again() -> None:
    text = html_to_markdown("<a href=/x><table><tr><td>" * 30 + "[" * 200, "http://x.example/", max_chars=10_000).text
    assert text == "[" + r"\[" * 200 + "](http://x.example/x)"


def test_the_text_of_links_in_links_is_not_gone_through_again_and_again() -> None:
    def took(links: int) -> float:
        page = "<h1>" + "<a href=/x><table>" * links + "a " * 200_000
        began = time.thread_time()
        assert html_to_markdown(page, "http://x.example/", max_chars=10_000_000).text.startswith("# [a a ")
        return time.thread_time() - began

    assert took(49) < 5 * took(1)


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


def test_blank_lines_count_as_text() -> None:
    assert len(html_to_markdown("<p>x" * 1000, "http://x.example/", max_chars=1000).text) <= 1000


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


@pytest.mark.parametrize("work", [7, 8])
def test_a_page_that_is_just_as_much_as_may_be_is_whole(work: int) -> None:
    assert html_to_markdown("<p>x</p><b>y</b>", "http://x.example/", max_chars=100, max_work=work).is_whole


def test_a_text_with_more_references_than_are_read_keeps_the_others_as_they_are() -> None:
    made = html_to_markdown("&lt;" * 100_002, "http://x.example/", max_chars=10_000_000)
    assert made.text == "<" * 100_000 + "&lt;&lt;"


def test_links_of_an_unusual_form_are_made_so_many_times_and_no_more() -> None:
    made = html_to_markdown("<p><a href=?q>link</a></p>" * 6000, "http://x.example/", max_chars=1_000_000)
    assert (made.is_whole, made.text.count("[link]"), made.text.count("link")) == (False, 5000, 6000)


def test_a_page_of_usual_size_is_read_whole() -> None:
    item = '<div class="item"><p>Some words of a text, and <a href="/more">more</a>.</p></div>'
    assert html_to_markdown(item * 10_000, "http://x.example/", max_chars=10_000_000).is_whole


def test_an_answer_says_that_not_all_of_a_page_was_read() -> None:
    async def main() -> str:
        async with origin({"/p": answer(b"<a href=x>x" * 80, "Content-Type: text/html")}) as site:
            return await fetch_with(make_server(allow_local=True, max_bytes=1000), f"{site.url}/p", max_length=10)

    expected = "Not all of the page was read: it has too much markup, or its text is too long.\nContents of"
    assert run_async(main()).startswith(expected)


def test_a_type_of_bytes_that_are_no_text_is_still_an_answer() -> None:
    async def main() -> str:
        odd = b"HTTP/1.1 200 Reason\r\nContent-Length: 1\r\nContent-Type: text/\xff\xfe\r\n\r\nx"
        async with origin({"/odd": odd}) as site:
            return await fetch_with(make_server(allow_local=True), f"{site.url}/odd")

    assert "Content of type text/\ufffd\ufffd, not turned into Markdown:\n" in run_async(main())


def test_lines_in_many_quotes_do_not_grow_beyond_the_limit() -> None:
    text = html_to_markdown(
        "<blockquote>" * 90 + "<pre>" + "x\n" * 100_000, "http://x.example/", max_chars=200_000
    ).text
    assert 150_000 < len(text) <= 200_000
