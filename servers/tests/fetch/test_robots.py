"""robots.txt: which group applies, which rule decides, and sites without the file."""

from __future__ import annotations

import pytest

from servers.tests.fetch.calls import fetch_with, prompt
from tests.net.origins import answer, origin, redirect
from trunkline import Client, ToolError
from trunkline_servers.fetch import make_server
from trunkline_servers.fetch.robots import parse_robots, product_of

TEXT = "Content-Type: text/plain"


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        pytest.param("", "/a", True, id="nothing"),
        pytest.param("Disallow:", "/a", True, id="empty-rule"),
        pytest.param("Disallow: /", "/a", False, id="everything"),
        pytest.param("Disallow: /", "/robots.txt", True, id="the-file-itself"),
        pytest.param("Disallow: /a", "/abc", False, id="prefix"),
        pytest.param("Disallow: /a/", "/a", True, id="folder"),
        pytest.param("Disallow: /a\nAllow: /a/b", "/a/b/c", True, id="longest-allows"),
        pytest.param("Allow: /a\nDisallow: /a/b", "/a/b/c", False, id="longest-disallows"),
        pytest.param("Disallow: /a\nAllow: /a", "/a", True, id="as-long-allows"),
        pytest.param("Disallow: /*.gif$", "/x/y.gif", False, id="star-and-end"),
        pytest.param("Disallow: /*.gif$", "/x/y.gif?z", True, id="not-at-the-end"),
        pytest.param("Disallow: /a$", "/a", False, id="exact"),
        pytest.param("Disallow: /a$", "/ab", True, id="not-exact"),
        pytest.param("Disallow: /a*b*c", "/aXbYcZ", False, id="stars"),
        pytest.param("Disallow: /a*b*c", "/acb", True, id="wrong-order"),
        pytest.param("Disallow: /aba*ba$", "/aba", True, id="parts-do-not-overlap"),
        pytest.param("Disallow: *secret", "/x/secret", False, id="star-first"),
        pytest.param("Disallow: /p?q=1", "/p?q=1&r", False, id="query"),
        pytest.param("Disallow: /%7Euser", "/~user/x", False, id="encoded-for-nothing"),
        pytest.param("Disallow: /ü", "/%c3%bc", False, id="not-encoded"),
        pytest.param("Disallow: /a%2Fb", "/a/b", True, id="encoded-for-a-reason"),
        pytest.param("  disALLOW :  /a  # why", "/a", False, id="spaces-capitals-comment"),
        pytest.param("Disallow: /a", "/b/../a", False, id="two-dots"),
        pytest.param("Disallow: /a", "/b/%2E%2e/./a/c", False, id="encoded-dots"),
        pytest.param("Disallow: /a/", "/a/b/..", False, id="dots-at-the-end"),
        pytest.param("Disallow: /a", "/../../a", False, id="dots-above-the-top"),
        pytest.param("Disallow: /a", "/b?/../a", True, id="dots-in-a-query"),
        pytest.param("Disallow: /b/../a", "/b/../a", False, id="dots-in-a-rule"),
        pytest.param("Sitemap: x\nNonsense\nDisallow: /a", "/a", False, id="other-lines"),
    ],
)
def test_a_rule_decides(rules: str, path: str, allowed: bool) -> None:
    robots = parse_robots(f"User-agent: *\n{rules}\n", "acme")
    assert (robots.disallowing_rule(path) is None) is allowed


@pytest.mark.parametrize(
    ("file", "allowed"),
    [
        pytest.param("User-agent: acme\nDisallow: /", False, id="mine"),
        pytest.param("User-agent: ACME/7\nDisallow: /", False, id="mine-in-capitals"),
        pytest.param("User-agent: other\nDisallow: /", True, id="others"),
        pytest.param("User-agent: acmebot\nDisallow: /", True, id="longer-name"),
        pytest.param(
            "User-agent: *\nDisallow: /\nUser-agent: acme\nAllow: /", True, id="own-group-over-the-group-for-all"
        ),
        pytest.param("User-agent: acme\n\nUser-agent: *\nDisallow: /", False, id="two-names-one-group"),
        pytest.param("User-agent: acme\nDisallow: /b\nUser-agent: acme\nDisallow: /", False, id="two-groups-of-mine"),
        pytest.param("User-agent: acme\nDisallow:\nUser-agent: *\nDisallow: /", True, id="mine-says-nothing"),
        pytest.param("Disallow: /", True, id="rule-without-a-group"),
        pytest.param("\ufeffUser-agent: *\r\nDisallow: /\r\n", False, id="mark-and-carriage-returns"),
        pytest.param("<html>not found</html>", True, id="page-instead-of-a-file"),
    ],
)
def test_the_group_of_the_user_agent_applies_else_the_group_for_all(file: str, allowed: bool) -> None:
    assert (parse_robots(file, "acme").disallowing_rule("/a") is None) is allowed


@pytest.mark.parametrize(
    ("agent", "product"), [("Acme/1.0 (x)", "acme"), ("acme-bot", "acme-bot"), (" A_b 2", "a_b"), ("7", "")]
)
def test_a_program_is_known_by_its_first_word(agent: str, product: str) -> None:
    assert product_of(agent) == product


def test_a_group_with_a_name_many_times_has_each_rule_once() -> None:
    robots = parse_robots("User-agent: *\nUser-agent: acme\n" * 500 + "Disallow: /a\n" * 500, "acme")
    assert len(robots.rules) == 500


def test_many_rules_with_many_stars_are_matched_in_linear_time() -> None:
    robots = parse_robots("User-agent: *\n" + ("Disallow: " + "/*a" * 100 + "b\n") * 300, "acme")
    assert robots.disallowing_rule("/a" * 2000) is None


# --- through the tool ------------------------------------------------------------------------------------------------


async def test_a_forbidden_page_is_not_asked_for_and_the_rule_is_named() -> None:
    rules = answer(b"User-agent: ModelContextProtocol\nDisallow: /p", TEXT)
    async with origin({"/robots.txt": rules, "/p": answer(b"x", TEXT)}) as site:
        with pytest.raises(ToolError, match=r"does not allow programs to fetch this page .rule: Disallow: '/p'."):
            await fetch_with(make_server(allow_local=True), f"{site.url}/p")
    assert [got.path for got in site.got] == ["/robots.txt"]


async def test_a_redirect_to_a_forbidden_page_is_not_followed() -> None:
    rules = answer(b"User-agent: *\nDisallow: /p", TEXT)
    async with origin({"/robots.txt": rules, "/a": redirect("/p"), "/p": answer(b"x", TEXT)}) as site:
        with pytest.raises(ToolError, match="does not allow programs"):
            await fetch_with(make_server(allow_local=True), f"{site.url}/a")
    assert [got.path for got in site.got] == ["/robots.txt", "/a"]


async def test_another_site_is_asked_for_its_own_rules() -> None:
    rules = answer(b"User-agent: *\nDisallow: /", TEXT)
    async with origin({"/robots.txt": rules}) as other, origin() as site:
        site.answers["/a"] = redirect(f"{other.url}/b")
        with pytest.raises(ToolError, match="does not allow programs"):
            await fetch_with(make_server(allow_local=True), f"{site.url}/a")
    assert ([got.path for got in other.got], [got.path for got in site.got]) == (
        ["/robots.txt"],
        ["/robots.txt", "/a"],
    )


@pytest.mark.parametrize("status", [403, 500])
async def test_a_site_that_does_not_give_its_rules_is_left_alone(status: int) -> None:
    async with origin({"/robots.txt": answer(b"", status=status), "/p": answer(b"x", TEXT)}) as site:
        with pytest.raises(ToolError, match=f"answered with status {status}, which means that programs may not fetch"):
            await fetch_with(make_server(allow_local=True), f"{site.url}/p")
    assert [got.path for got in site.got] == ["/robots.txt"]


@pytest.mark.parametrize("status", [404, 429])
async def test_a_site_without_rules_is_fetched_from(status: int) -> None:
    async with origin({"/robots.txt": answer(b"", status=status), "/p": answer(b"fine", TEXT)}) as site:
        assert (await fetch_with(make_server(allow_local=True), f"{site.url}/p")).endswith("fine")


async def test_rules_that_break_off_are_no_rules() -> None:
    async with origin({"/robots.txt": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nUser"}) as site:
        with pytest.raises(ToolError, match=r"robots\.txt of the site must be read before"):
            await fetch_with(make_server(allow_local=True), f"{site.url}/p")


async def test_only_the_first_500_kib_of_a_file_are_read() -> None:
    file = b"User-agent: *\n" + b"#" * (500 * 1024) + b"\nDisallow: /"
    async with origin({"/robots.txt": answer(file, TEXT), "/p": answer(b"fine", TEXT)}) as site:
        assert (await fetch_with(make_server(allow_local=True), f"{site.url}/p")).endswith("fine")


async def test_the_rules_of_a_site_are_asked_for_once() -> None:
    async with origin({"/p": answer(b"x", TEXT)}) as site, Client(make_server(allow_local=True)) as client:
        await client.call_tool("fetch", {"url": f"{site.url}/p"})
        await client.call_tool("fetch", {"url": f"{site.url}/p"})
    assert [got.path for got in site.got] == ["/robots.txt", "/p", "/p"]


async def test_the_prompt_and_ignore_robots_txt_skip_the_rules() -> None:
    rules = answer(b"User-agent: *\nDisallow: /", TEXT)
    async with origin({"/robots.txt": rules, "/p": answer(b"x", TEXT)}) as site:
        await prompt(make_server(allow_local=True), f"{site.url}/p")
        await fetch_with(make_server(allow_local=True, ignore_robots_txt=True), f"{site.url}/p")
    assert [got.path for got in site.got] == ["/p", "/p"]


async def test_a_file_with_too_many_rules_for_a_long_url_is_not_worked_through() -> None:
    rules = answer(b"User-agent: *\n" + b"Disallow: *ab\n" * 30_000, TEXT)
    async with origin({"/robots.txt": rules, "/p": answer(b"x", TEXT)}) as site:
        server = make_server(allow_local=True)
        with pytest.raises(ToolError, match="too many rules to compare with so long a URL"):
            await fetch_with(server, f"{site.url}/{'a' * 5000}")
        assert (await fetch_with(server, f"{site.url}/p")).endswith("x")
