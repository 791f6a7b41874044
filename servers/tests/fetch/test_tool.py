"""The fetch tool and prompt, as clients see them."""

from __future__ import annotations

import pytest

from servers.tests.commands import started
from servers.tests.fetch.calls import PAGE, fetch, fetch_with, page_of, prompt
from tests.net.origins import always, answer, origin, redirect
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.fetch import make_server

HTML = "Content-Type: text/html; charset=utf-8"
TEXT = "Content-Type: text/plain; charset=utf-8"


async def test_a_page_comes_as_markdown_in_every_era() -> None:
    async with origin({"/p": answer(PAGE, HTML)}) as site:
        server = make_server(allow_hosts=["127.0.0.1"])
        async with Client(server, revision="2025-11-25") as client:
            text = (await client.call_tool("fetch", {"url": f"{site.url}/p"})).text
        assert text.replace(site.url, "SITE") == "Contents of SITE/p:\n# Rivers\n\nThe Danube passes **ten** countries."


async def test_the_tool_and_the_prompt_have_the_official_arguments() -> None:
    async with Client(make_server()) as client:
        [tool] = await client.list_tools()
        [asked] = await client.list_prompts()
    shown = {name: each.get("default") for name, each in tool.input_schema["properties"].items()}
    assert shown == {"url": None, "max_length": 5000, "start_index": 0, "raw": False}
    assert (tool.input_schema["required"], tool.output_schema) == (["url"], None)
    assert tool.annotations is not None
    assert (tool.annotations.read_only_hint, tool.annotations.open_world_hint) == (True, True)
    assert [(each.name, each.required) for each in asked.arguments or []] == [("url", True)]


async def test_raw_gives_the_page_as_it_is() -> None:
    async with origin({"/p": answer(PAGE, HTML)}) as site:
        text = await fetch(site, "/p", raw=True)
    note, _, rest = text.partition("\n")
    assert note == "Content of type text/html; charset=utf-8, as it is:"
    assert rest.endswith(PAGE.decode())


async def test_content_that_is_not_html_is_returned_unchanged_with_its_type() -> None:
    async with origin({"/d": answer(b'{"a": "<b>"}', "Content-Type: application/json")}) as site:
        assert (await fetch(site, "/d")).replace(site.url, "SITE") == (
            'Content of type application/json, not turned into Markdown:\nContents of SITE/d:\n{"a": "<b>"}'
        )


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        pytest.param(0, 4, "0123\n\n<error>Cut at 4 of 10 characters. ", id="begin"),
        pytest.param(4, 3, "456\n\n<error>Cut at 7 of 10 characters. ", id="middle"),
        pytest.param(7, 3, "789", id="end"),
        pytest.param(7, 5000, "789", id="more-than-there-is"),
        pytest.param(10, 5, "<error>There is nothing at start_index 10", id="behind-the-end"),
    ],
)
async def test_a_long_page_comes_in_parts(start: int, length: int, expected: str) -> None:
    async with origin({"/t": answer(b"0123456789", TEXT)}) as site:
        text = await page_of(site, "/t", start_index=start, max_length=length)
    assert text.startswith(expected)
    assert text.count(f"call fetch with a start_index of {start + length}.</error>") == expected.count("Cut at")


@pytest.mark.parametrize("status", [404, 500])
async def test_a_failing_page_is_an_error_with_its_status(status: int) -> None:
    async with origin({"/p": answer(PAGE, HTML, status=status)}) as site:
        with pytest.raises(ToolError, match=f"answered with status {status}"):
            await fetch(site, "/p")


async def test_a_redirect_is_followed_and_links_are_made_for_where_it_led() -> None:
    async with origin({"/a": redirect("/deep/b"), "/deep/b": answer(b"<p><a href=c>c</a> d</p>", HTML)}) as site:
        assert (await page_of(site, "/a")).replace(site.url, "SITE") == "[c](SITE/deep/c) d"


async def test_a_file_that_is_no_text_is_an_error_with_type_and_size() -> None:
    picture = answer(b"\x89PNG\r\n\x1a\n" + b"\0" * 92, "Content-Type: text/html")
    async with origin({"/x": picture}) as site:
        with pytest.raises(ToolError, match=r"gave 'image/png' of 100 bytes, which is not text"):
            await fetch(site, "/x")


async def test_a_page_without_text_says_so() -> None:
    async with origin({"/e": answer(b"<html><script>x</script></html>", HTML)}) as site:
        assert "set raw to true" in await page_of(site, "/e")


async def test_the_user_agent_is_sent_and_can_be_changed() -> None:
    async with origin({"/t": answer(b"x", TEXT)}) as site:
        await fetch(site, "/t")
        await fetch_with(make_server(allow_local=True, user_agent="acme/2"), f"{site.url}/t")
        await prompt(make_server(allow_local=True), f"{site.url}/t")
    names = [got.headers["user-agent"] for got in site.got]
    assert [name.partition(" (")[0] for name in names] == [
        *["ModelContextProtocol/1.0"] * 2,
        *["acme/2"] * 2,
        "ModelContextProtocol/1.0",
    ]
    assert ("Autonomous" in names[0], "User-Specified" in names[-1]) == (True, True)


async def test_the_prompt_gives_the_page_alone() -> None:
    async with origin({"/p": answer(PAGE, HTML)}) as site:
        assert (
            await prompt(make_server(allow_local=True), f"{site.url}/p")
            == "# Rivers\n\nThe Danube passes **ten** countries."
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({}, "missing argument 'url'", id="no-url"),
        pytest.param({"url": ""}, "length >= 1", id="empty-url"),
        pytest.param({"url": "nothing"}, "Will not fetch 'nothing'", id="no-scheme"),
        pytest.param({"url": "http://x.example/" + "a" * 9000}, "at most 8000", id="long-url"),
        pytest.param(
            {"url": "http://x.example", "max_length": 0}, "max_length: expected an integer >= 1", id="nothing"
        ),
        pytest.param({"url": "http://x.example", "max_length": 10**6}, "<= 999999", id="too-much"),
        pytest.param({"url": "http://x.example", "start_index": -1}, "start_index", id="before-the-begin"),
    ],
)
async def test_a_wrong_argument_is_reported(arguments: dict[str, object], message: str) -> None:
    async with Client(make_server()) as client:
        with pytest.raises(ToolError, match=message):
            await client.call_tool("fetch", arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"proxy_url": "socks5://proxy"}, "--proxy-url must be a URL", id="proxy"),
        pytest.param(
            {"allow_hosts": ["http://x/"]}, "'http://x/' is not a host: give HOST or HOST:PORT", id="host-url"
        ),
        pytest.param({"allow_hosts": ["x/y"]}, "--allow-host 'x/y'", id="host-with-path"),
        pytest.param({"allow_hosts": ["x#y"]}, "--allow-host 'x#y'", id="host-with-fragment"),
        pytest.param({"allow_hosts": ["x?y"]}, "--allow-host 'x", id="host-with-query"),
        pytest.param({"allow_hosts": ["a@x"]}, "--allow-host 'a@x'", id="host-with-user"),
        pytest.param({"allow_hosts": ["*.x"]}, "--allow-host", id="host-pattern"),
        pytest.param({"allow_hosts": ["x:"]}, "--allow-host 'x:'", id="host-without-port"),
        pytest.param({"allow_hosts": ["x:99999"]}, "--allow-host 'x:99999'", id="host-with-no-such-port"),
        pytest.param({"allow_hosts": [""]}, "--allow-host ''", id="no-host"),
        pytest.param({"allow_hosts": ["x\n"]}, "--allow-host 'x'", id="host-with-line-break"),
        pytest.param({"user_agent": "a\r\nX: y"}, "--user-agent", id="header-injection"),
        pytest.param({"max_bytes": 0}, "--max-bytes", id="no-bytes"),
        pytest.param({"seconds": 0.0}, "--timeout", id="no-time"),
    ],
)
def test_a_wrong_setting_is_reported(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_server(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "host", "port"),
    [
        ("bücher.example", "xn--bcher-kva.example", True),
        ("XN--BCHER-KVA.example", "bücher.example", False),
        ("Rivers.Example.", "rivers.example", True),
        ("rivers.example", "RIVERS.example.", False),
    ],
)
async def test_an_allowed_host_is_known_however_it_is_written(named: str, host: str, port: bool) -> None:
    async with origin({"/p": answer(PAGE, HTML)}) as site:
        allowed = named + f":{site.port}" * port
        server = make_server(allow_hosts=[allowed], resolve=always("127.0.0.1"))
        assert "# Rivers" in await fetch_with(server, f"http://{host}:{site.port}/p", max_length=8)


@pytest.mark.parametrize(
    ("url", "named", "ignore"),
    [
        ("http://localhost:1/", "localhost:1", True),
        ("https://127.0.0.1/", "127.0.0.1:443", False),
        ("http://[::1]:8000/", "[::1]:8000", True),
        ("http://inside.example/x", "inside.example:80", False),
    ],
)
def test_a_refused_address_is_reported_with_the_option_that_allows_it(url: str, named: str, ignore: bool) -> None:
    server = make_server(ignore_robots_txt=ignore, resolve=always("10.0.0.1"))
    with pytest.raises(ToolError) as caught:
        run_async(fetch_with(server, url))
    told = str(caught.value)
    assert told.startswith(f"Will not fetch from {named}: ")
    assert told.endswith(f" If the user means that, the server must be started with --allow-host {named}.")


async def test_where_a_redirect_leads_is_refused_without_a_way_to_allow_it() -> None:
    async with origin({"/": redirect("http://inside.example/")}) as site:
        server = make_server(allow_hosts=[f"open.example:{site.port}"], resolve=always("127.0.0.1"))
        with pytest.raises(ToolError) as caught:
            await fetch_with(server, f"http://open.example:{site.port}/")
        told = str(caught.value)
    assert ("not on the public Internet" in told, "--allow-host" in told) == (True, False)


async def test_the_options_of_the_command_reach_the_server() -> None:
    async with origin({"/p": answer(PAGE, HTML)}) as site:
        server = started("fetch", "--allow-host", f"127.0.0.1:{site.port}").server
        assert "# Rivers" in await fetch_with(server, f"{site.url}/p")
