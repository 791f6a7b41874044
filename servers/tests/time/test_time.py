"""The time server: zones, days with a clock change, and wrong arguments."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from servers.tests.commands import started
from servers.tests.over_http import hints_of, texts
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.time import make_server, server

REVISIONS = [pytest.param("2025-11-25", id="handshake"), pytest.param("2026-07-28", id="stateless")]
WINTER = datetime(2025, 1, 15, 12, 0, 30, tzinfo=UTC)


def ask(tool: str, at: datetime = WINTER, revision: str = "2025-11-25", **arguments: Any) -> Any:
    async def scene() -> Any:
        async with Client(make_server(local_timezone="UTC", now=lambda: at), revision=revision) as client:
            result = await client.call_tool(tool, arguments)
            (text,) = texts(result)
            assert text == msgspec.json.format(msgspec.json.encode(result.structured_content), indent=2).decode()
            return result.structured_content

    return run_async(scene())


def conversion(time: str, at: datetime, source: str = "Europe/Berlin", target: str = "UTC") -> Any:
    return ask("convert_time", at, source_timezone=source, time=time, target_timezone=target)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_current_time_is_returned_for_a_zone(revision: str) -> None:
    assert ask("get_current_time", revision=revision, timezone="Asia/Tokyo") == {
        "timezone": "Asia/Tokyo",
        "datetime": "2025-01-15T21:00:30+09:00",
        "day_of_week": "Wednesday",
        "is_dst": False,
    }


def test_summer_time_is_reported() -> None:
    summer = datetime(2025, 7, 1, 12, 0, tzinfo=UTC)
    assert ask("get_current_time", summer, timezone="Europe/Berlin")["is_dst"] is True


@pytest.mark.parametrize(
    ("source", "target", "told", "difference"),
    [
        pytest.param("Europe/Berlin", "Asia/Tokyo", "2025-01-15T21:30:00+09:00", "+8.0h", id="whole-hours"),
        pytest.param("Europe/Berlin", "Asia/Kathmandu", "2025-01-15T18:15:00+05:45", "+4.75h", id="three-quarters"),
        pytest.param("Asia/Kolkata", "UTC", "2025-01-15T08:00:00+00:00", "-5.5h", id="half"),
        pytest.param("UTC", "UTC", "2025-01-15T13:30:00+00:00", "+0.0h", id="same"),
        pytest.param("Pacific/Kiritimati", "Pacific/Pago_Pago", "2025-01-15T12:30:00-11:00", "-25.0h", id="a-day"),
    ],
)
def test_a_time_of_today_is_converted(source: str, target: str, told: str, difference: str) -> None:
    answer = conversion("13:30", WINTER, source, target)
    assert (answer["target"]["datetime"], answer["time_difference"]) == (told, difference)


def test_today_is_today_in_the_source_zone() -> None:
    late = datetime(2025, 1, 15, 23, 0, tzinfo=UTC)
    assert conversion("08:00", late, "Asia/Tokyo")["source"]["datetime"] == "2025-01-16T08:00:00+09:00"


def test_a_time_that_the_clock_jumps_over_is_refused() -> None:
    with pytest.raises(ToolError, match=r"2025-03-30 the clocks of Europe/Berlin are put forward over 02:30"):
        conversion("02:30", datetime(2025, 3, 30, 0, 0, tzinfo=UTC))


@pytest.mark.parametrize(("time", "told"), [("01:59", "00:59"), ("03:00", "01:00")])
def test_times_around_the_jump_are_converted(time: str, told: str) -> None:
    answer = conversion(time, datetime(2025, 3, 30, 0, 0, tzinfo=UTC))
    assert answer["target"]["datetime"] == f"2025-03-30T{told}:00+00:00"


def test_a_time_that_occurs_twice_means_the_first() -> None:
    answer = conversion("02:30", datetime(2025, 10, 26, 12, 0, tzinfo=UTC))
    assert (answer["source"]["is_dst"], answer["target"]["datetime"]) == (True, "2025-10-26T00:30:00+00:00")


@pytest.mark.parametrize("time", ["24:00", "12:60", "noon", "", "12", "-1:30", "12:30:00", "1e1:00"])
def test_an_invalid_time_is_refused(time: str) -> None:
    with pytest.raises(ToolError, match="write it as HH:MM"):
        conversion(time, WINTER)


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "europe/berlin", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b", "x" * 5000]
)
def test_an_invalid_zone_is_refused_without_revealing_a_path(name: str) -> None:
    with pytest.raises(ToolError, match="Give an IANA name") as caught:
        ask("get_current_time", timezone=name)
    assert "zoneinfo" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("variable", "file", "link", "found"),
    [
        pytest.param("Asia/Tokyo", "Europe/Oslo", "Europe/Rome", "Asia/Tokyo", id="variable"),
        pytest.param(":Asia/Tokyo", "", "", "Asia/Tokyo", id="variable-with-colon"),
        pytest.param("CET-1CEST", "Europe/Oslo", "Europe/Rome", "Europe/Oslo", id="file"),
        pytest.param("", "", "Europe/Rome", "Europe/Rome", id="link"),
        pytest.param("", "", "", "UTC", id="unknown"),
    ],
)
def test_the_local_zone_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, file: str, link: str, found: str
) -> None:
    (tmp_path / "timezone").write_text(f"{file}\n")
    (tmp_path / "localtime").symlink_to(f"/nowhere/zoneinfo/{link}")
    monkeypatch.setenv("TZ", variable)
    monkeypatch.setattr(server, "_TIMEZONE_FILE", str(tmp_path / "timezone"))
    monkeypatch.setattr(server, "_LOCALTIME", str(tmp_path / "localtime"))
    assert server.local_zone() == found


@pytest.fixture
def folder_of_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, content in {"My/Zone": b"TZif2", "right/Zone": b"TZif2", "posixrules": b"TZif2", "My/list": b"x"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(server, "TZPATH", (str(tmp_path),))
    monkeypatch.setattr(server, "_names", lambda: frozenset({"Listed/Elsewhere"}))
    server._found.cache_clear()
    yield
    server._found.cache_clear()


@pytest.mark.usefixtures("folder_of_zones")
@pytest.mark.parametrize("name", ["My/Zone", "Listed/Elsewhere"])
def test_a_zone_is_found_where_it_lies_without_reading_all_the_others(name: str) -> None:
    assert server.local_zone(name) == name


@pytest.mark.usefixtures("folder_of_zones")
@pytest.mark.parametrize(
    "name", ["my/zone", "My", "My/list", "My/", "right/Zone", "posixrules", "../zones/My/Zone", "My/../My/Zone"]
)
def test_other_files_among_the_zones_are_not_zones(name: str) -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        server.local_zone(name)


def test_a_local_zone_that_does_not_exist_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="no time zone 'Mars/Olympus'"):
        make_server(local_timezone="Mars/Olympus")


async def test_the_tools_name_the_local_zone_of_the_command_line() -> None:
    async with Client(started("time", "--local-timezone", "Europe/Oslo").server) as client:
        told, converted = await client.list_tools()
        hints = await hints_of(client)
    assert "'Europe/Oslo'" in told.input_schema["properties"]["timezone"]["description"]
    assert converted.input_schema["required"] == ["source_timezone", "time", "target_timezone"]
    assert {(each.read_only_hint, each.open_world_hint) for each in hints.values()} == {(True, False)}
