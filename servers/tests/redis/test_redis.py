"""The Redis server on a real redis-server, through a client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from servers.tests.commands import started
from servers.tests.over_http import hints_of
from servers.tests.redis.program import RedisProgram, needs_redis, redis_program
from tests.support import run_async
from trunkline import Client, ConfigError, Server, ToolError
from trunkline_servers.redis import make_server
from trunkline_servers.redis.server import RedisLimits, redacted_redis_url

pytestmark = needs_redis

REVISIONS = ("2025-06-18", "2026-07-28")


@pytest.fixture(scope="module")
def program() -> Iterator[RedisProgram]:
    with redis_program() as started:
        yield started


@pytest.fixture
def empty(program: RedisProgram) -> RedisProgram:
    """The database without a key."""

    async def flush() -> None:
        from redis.asyncio import Redis

        async with Redis.from_url(program.url) as client:
            await client.flushall()

    run_async(flush())
    return program


def _texts(result: Any) -> list[str]:
    return [part.text for part in result.content]


def ask(server: Server, *calls: tuple[str, dict[str, Any]], revision: str = "2026-07-28") -> list[list[str]]:
    """Make calls one after the other; give the texts of each answer."""

    async def main() -> list[list[str]]:
        async with Client(server, revision=revision) as client:
            return [_texts(await client.call_tool(*call)) for call in calls]

    return run_async(main())


def raw(program: RedisProgram, *command: str | bytes) -> Any:
    """Send a command past the server."""

    async def main() -> Any:
        from redis.asyncio import Redis

        async with Redis.from_url(program.url) as client:
            return await cast("Any", client).execute_command(*command)

    return run_async(main())


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_value_is_set_read_listed_and_deleted(empty: RedisProgram, revision: str) -> None:
    answers = ask(
        make_server(empty.url),
        ("set", {"key": "a", "value": "grüße"}),
        ("get", {"key": "a"}),
        ("list", {}),
        ("set", {"key": "b", "value": "1"}),
        ("delete", {"key": ["a", "b"]}),
        ("get", {"key": "a"}),
        ("list", {"pattern": "a*"}),
        revision=revision,
    )
    assert answers == [
        ["Successfully set key: a"],
        ["grüße"],
        ["Found keys:\na"],
        ["Successfully set key: b"],
        ["Successfully deleted 2 keys"],
        ["Key not found: a"],
        ["No keys found matching pattern"],
    ]


def test_a_key_with_an_expiry_has_one(empty: RedisProgram) -> None:
    ask(make_server(empty.url), ("set", {"key": "a", "value": "1", "expireSeconds": 60}))
    assert 0 < raw(empty, "TTL", "a") <= 60


@pytest.mark.parametrize("seconds", [0, -1, 1.5, 1e300])
def test_an_expiry_that_redis_does_not_have_writes_nothing(empty: RedisProgram, seconds: float) -> None:
    with pytest.raises(ToolError, match="expireSeconds must be a whole number"):
        ask(make_server(empty.url), ("set", {"key": "a", "value": "1", "expireSeconds": seconds}))
    assert raw(empty, "DBSIZE") == 0


@pytest.mark.parametrize("key", ["", "a b", "--cluster", "a\r\nFLUSHALL\r\n", "*", "ключ", "$(id)"])
def test_a_key_is_data_whatever_it_holds(empty: RedisProgram, key: str) -> None:
    raw(empty, "SET", "other", "kept")
    answers = ask(
        make_server(empty.url), ("set", {"key": key, "value": "v"}), ("get", {"key": key}), ("delete", {"key": key})
    )
    assert answers[1] == ["v"]
    assert raw(empty, "KEYS", "*") == [b"other"]


def test_a_key_with_a_line_feed_is_listed_on_one_line(empty: RedisProgram) -> None:
    raw(empty, "SET", "a\nb", "1")
    assert ask(make_server(empty.url), ("list", {})) == [["Found keys:\na\\nb"]]


@pytest.mark.parametrize(
    ("size", "limits", "shown", "told"),
    [
        (1, RedisLimits(keys=5), 5, "cut after 5 keys (more match)"),
        (1, RedisLimits(keys=12), 12, ""),
        (300, RedisLimits(list_bytes=1000), 1, "cut after 1 keys"),
        (1, RedisLimits(scan_seconds=0), None, "the scan took longer than 0 s"),
    ],
    ids=["keys", "just-the-keys", "bytes", "seconds"],
)
def test_a_list_ends_at_its_limits_and_says_so(
    empty: RedisProgram, size: int, limits: RedisLimits, shown: int | None, told: str
) -> None:
    raw(empty, "MSET", *(part for number in range(12) for part in (f"{number:02}" * size, "v")))
    ((keys, *notes),) = ask(make_server(empty.url, limits=limits), ("list", {}))
    assert shown in (None, len(keys.splitlines()) - 1)
    assert ([told] if told else []) == [told for note in notes if told in note]


def test_a_value_up_to_the_cap_is_written_and_read_and_no_larger_one(empty: RedisProgram) -> None:
    server = make_server(empty.url, limits=RedisLimits(value_bytes=10))
    assert ask(server, ("set", {"key": "a", "value": "x" * 10}), ("get", {"key": "a"}))[1] == ["x" * 10]
    with pytest.raises(ToolError, match="11 bytes; at most 10"):
        ask(server, ("set", {"key": "b", "value": "x" * 11}))
    raw(empty, "SETRANGE", "big", "10", "x")
    with pytest.raises(ToolError, match=r"'big' has 11 bytes; at most 10"):
        ask(server, ("get", {"key": "big"}))
    assert raw(empty, "EXISTS", "b") == 0


def test_bytes_that_are_no_text_are_escaped(empty: RedisProgram) -> None:
    raw(empty, "SET", "a", b"ok\xff")
    assert ask(make_server(empty.url), ("get", {"key": "a"})) == [["ok\\xff"]]


def test_another_kind_of_value_is_a_clear_error(empty: RedisProgram) -> None:
    raw(empty, "LPUSH", "a", "1")
    with pytest.raises(ToolError, match=r"'a' holds a list, a hash or the like \(WRONGTYPE\)"):
        ask(make_server(empty.url), ("get", {"key": "a"}))


async def test_more_calls_at_once_than_connections_are_all_answered(empty: RedisProgram) -> None:
    async with Client(make_server(empty.url)) as client:
        answers = await asyncio.gather(*(client.call_tool("get", {"key": "a"}) for _ in range(100)))
    assert {text for answer in answers for text in _texts(answer)} == {"Key not found: a"}


def test_a_pattern_of_many_stars_is_refused(empty: RedisProgram) -> None:
    with pytest.raises(ToolError, match="more than 8 stars"):
        ask(make_server(empty.url), ("list", {"pattern": "*a" * 9}))


def test_an_address_that_asks_for_decoded_answers_changes_nothing(empty: RedisProgram) -> None:
    server = make_server(f"{empty.url}?decode_responses=true")
    assert ask(server, ("set", {"key": "a", "value": "1"}), ("get", {"key": "a"}), ("list", {}))[1:] == [
        ["1"],
        ["Found keys:\na"],
    ]


def test_an_unknown_database_number_is_reported(empty: RedisProgram) -> None:
    with pytest.raises(ToolError, match="DB index is out of range"):
        ask(make_server(f"{empty.url}?db=99", limits=RedisLimits(retries=0)), ("get", {"key": "a"}))


@pytest.mark.parametrize(
    ("keys", "words"), [([], "at least one key"), (["k"] * 6, "6 keys are too many"), (["k" * 5000], "5000 bytes")]
)
def test_a_deletion_beyond_the_limits_deletes_nothing(empty: RedisProgram, keys: list[str], words: str) -> None:
    raw(empty, "SET", "k", "v")
    with pytest.raises(ToolError, match=words):
        ask(make_server(empty.url, limits=RedisLimits(keys=5)), ("delete", {"key": keys}))
    assert raw(empty, "DBSIZE") == 1


@pytest.mark.parametrize("arguments", [{}, {"key": 7}, {"key": None}, {"key": [1]}, {"key": {}}])
def test_a_wrong_argument_is_an_answer_and_not_a_fault(empty: RedisProgram, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="key"):
        ask(make_server(empty.url), ("delete", arguments))


@pytest.mark.parametrize("tool", ["set", "list"])
def test_an_unknown_argument_is_refused(empty: RedisProgram, tool: str) -> None:
    needed = {"set": {"key": "a", "value": "b"}, "list": {}}[tool]
    with pytest.raises(ToolError, match="There is no argument expireSecond"):
        ask(make_server(empty.url), (tool, {**needed, "expireSecond": 5}))
    assert raw(empty, "DBSIZE") == 0


async def test_a_read_only_server_has_no_writing_tool(empty: RedisProgram) -> None:
    async with Client(make_server(empty.url, read_only=True)) as client:
        assert sorted(tool.name for tool in await client.list_tools()) == ["get", "list"]


async def test_writing_tools_are_annotated_as_destructive(empty: RedisProgram) -> None:
    async with Client(make_server(empty.url)) as client:
        hints = await hints_of(client)
    assert [hints[name].destructive_hint for name in ("set", "delete")] == [True, True]
    assert [hints[name].read_only_hint for name in ("get", "list")] == [True, True]


# --- a database that is not there ------------------------------------------------------------------------------------


def test_a_port_without_a_server_is_a_clear_error_without_the_password() -> None:
    server = make_server("redis://user:hush@127.0.0.1:1/0?protocol=2", limits=RedisLimits(retries=0))
    with pytest.raises(ToolError, match=r"redis://127.0.0.1:1/0 cannot be reached") as caught:
        ask(server, ("get", {"key": "a"}))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("tool", "arguments", "limits"),
    [
        ("get", {"key": "a"}, RedisLimits(answer_seconds=0.1, retries=0)),
        ("list", {}, RedisLimits(call_seconds=0.1)),
    ],
    ids=["answer", "call"],
)
async def test_a_database_that_does_not_answer_is_a_clear_error(
    tool: str, arguments: dict[str, str], limits: RedisLimits
) -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with silent, Client(make_server(f"redis://127.0.0.1:{port}", limits=limits)) as client:
        with pytest.raises(ToolError, match=r"cannot be reached \(no answer in time\)"):
            await client.call_tool(tool, arguments)


async def test_while_a_database_is_away_only_the_first_call_waits_for_it() -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    closed = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    counts = []
    async with closed, Client(make_server(f"redis://127.0.0.1:{port}", limits=RedisLimits(retries=2))) as client:
        for _ in range(3):
            with pytest.raises(ToolError, match="cannot be reached"):
                await client.call_tool("get", {"key": "a"})
            counts.append(connections)
    assert counts == [3, 4, 5]


async def test_a_member_of_a_cluster_is_a_clear_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while read := await reader.read(65536):
            moved = b"-MOVED 1 127.0.0.1:7001\r\n" if b"SCAN" in read else b"+OK\r\n" * read.count(b"CLIENT")
            writer.write(moved)
        writer.close()

    member = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = member.sockets[0].getsockname()[1]
    async with member, Client(make_server(f"redis://127.0.0.1:{port}?protocol=2")) as client:
        with pytest.raises(ToolError, match="is a member of a cluster, which this server does not follow"):
            await client.call_tool("list", {})


def test_a_database_that_comes_back_is_used_again() -> None:
    async def main(program: RedisProgram) -> list[str]:
        told: list[str] = []
        async with Client(make_server(program.url, limits=RedisLimits(retries=1))) as client:
            await client.call_tool("set", {"key": "a", "value": "1"})
            program.stop()
            with pytest.raises(ToolError, match="cannot be reached"):
                await client.call_tool("get", {"key": "a"})
            program.start()
            await client.call_tool("set", {"key": "a", "value": "2"})
            told += _texts(await client.call_tool("get", {"key": "a"}))
        return told

    with redis_program() as program:
        assert run_async(main(program)) == ["2"]


def test_a_wrong_password_is_a_clear_error_that_does_not_show_it() -> None:
    with redis_program(password="right-one") as program:
        server = make_server(f"unix://:wrong-one@{program.socket}", limits=RedisLimits(retries=0))
        with pytest.raises(ToolError, match="rejects the user and password") as caught:
            ask(server, ("get", {"key": "a"}))
        right = make_server(f"unix://:right-one@{program.socket}")
        assert ask(right, ("get", {"key": "a"})) == [["Key not found: a"]]
    assert "wrong-one" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "localhost:6379",
        "",
        "redis://:hush@host:port",
        "redis://:hush@h/0?socket_timeout=x",
        "redis://:hush@h/0?no_such_option=1",
        "redis://:hush@h/sessions",
        "unix://",
        "redis+sentinel://:hush@h/main",
    ],
)
def test_an_invalid_address_is_refused_at_the_start_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_server(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rediss://me:p@ss@db.example.com:6380/2?password=x", "rediss://db.example.com:6380/2"),
        ("redis://h/0?password=a@hush", "redis://..."),
        ("redis://:hu?sh@h", "redis://..."),
    ],
)
def test_a_shown_address_has_no_credentials(url: str, shown: str) -> None:
    assert redacted_redis_url(url) == shown


async def test_the_options_of_the_command_reach_the_server(empty: RedisProgram) -> None:
    async with Client(started("redis", empty.url).server) as client:
        await client.call_tool("set", {"key": "a", "value": ""})
        assert _texts(await client.call_tool("get", {"key": "a"})) == [""]


def test_a_database_that_does_not_exist_is_a_clear_error() -> None:
    server = make_server("unix:///nowhere/redis.sock", limits=RedisLimits(retries=1))
    with pytest.raises(ToolError, match=r"unix:///nowhere/redis.sock cannot be reached \(no such socket\). Start it"):
        ask(server, ("get", {"key": "a"}))
