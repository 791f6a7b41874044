"""The audit trail in the console: newest first, filtered, in pages, verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.console.support import OpenConsole, library, on_console, policy, refused
from trunkline.errors import ConfigError
from trunkline.host.audit.reader import AuditFilter, query_newest
from trunkline.host.audit.trail import AuditEntry, AuditTrail

RULES = policy(
    '[[rule]]\neffect = "deny"\nserver = "library"\ntool = "lend"\n'
    '[[rule]]\neffect = "allow"\nserver = "library"\ntool = "find"\ntainted = true\n'
)


async def use(console: OpenConsole, titles: int = 3) -> None:
    """Make some calls: one is denied, the others are allowed."""
    client = console.client()
    async with client.listen():
        for number in range(titles):
            await client.call("tool", "library/find", {"title": f"Volume {number}"})
        await client.call("tool", "library/lend", {"title": "Emma"})


async def test_entries_come_newest_first_and_in_pages(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, policy=RULES) as console:
        await use(console)
        client, seen, before = console.client(), list[int](), None
        for _ in range(20):
            query: dict[str, Any] = {} if before is None else {"before": before}
            page = await client.get("/audit", limit=2, **query)
            assert len(page["entries"]) <= 2
            seen += [entry["seq"] for entry in page["entries"]]
            before = page["more"]
            if before is None:
                break
        assert seen == sorted(seen, reverse=True)
        assert seen[-1] == 1
        assert len(seen) == len(set(seen)) >= 7


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"outcome": "denied"}, ["lend"]),
        ({"stage": "begun", "text": "VOLUME 1"}, ["find"]),
        ({"server": "lib*", "stage": "ended"}, ["find", "find", "find"]),
        ({"server": "other"}, []),
        ({"tool": "len*"}, ["lend"]),
        ({"text": "nothing like it"}, []),
    ],
)
async def test_entries_are_filtered(query: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, policy=RULES) as console:
        await use(console)
        found = await console.client().get("/audit", **query)
        assert [entry["name"] for entry in found["entries"]] == names


async def test_a_trail_is_verified(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, policy=RULES) as console:
        await use(console)
        client = console.client()
        found = await client.post("/audit/verify")
        assert (found["ok"], found["problem"]) == (True, None)
        assert found["entries"] >= 7
        trail = tmp_path / "state" / "audit.jsonl"
        assert console.console.core.audit is not None
        trail.write_bytes(trail.read_bytes().replace(b"Volume 1", b"Volume 9"))
        found = await client.post("/audit/verify")
        assert found["ok"] is False
        assert f"{trail}:" in found["problem"]


async def test_a_host_without_a_trail_says_so(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, audit=False) as console:
        client = console.client()
        assert (await client.get("/audit")) == {"file": None, "entries": [], "more": None}
        failed = await refused(client.post("/audit/verify"))
        assert failed.code == "no_audit"


async def test_a_secret_that_was_learned_later_is_masked(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, policy=RULES) as console:
        await use(console)
        console.console.core.secrets.add(["Volume 1"])
        found = await console.client().get("/audit")
        assert "Volume 1" not in str(found)


async def test_numbers_must_be_numbers(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        failed = await refused(console.client().get("/audit", before="yesterday"))
        assert failed.code == "invalid_request"


# --- several files ---------------------------------------------------------------------------------------------------


def rotated(folder: Path) -> str:
    """Write a trail of several files with 50 entries of the host."""
    trail = AuditTrail.open(folder / "audit.jsonl", max_bytes=2000)
    for number in range(50):
        trail.record(
            AuditEntry(act_id=str(number), stage="ended", server="a" if number % 2 else "b", name=f"t{number}")
        )
    trail.close()
    assert len(list(folder.glob("audit-*.jsonl"))) > 2
    return trail.path


def test_pages_go_on_through_rotated_files(tmp_path: Path) -> None:
    path = rotated(tmp_path)
    seen, before = list[str](), None
    while True:
        page, before = query_newest(path, AuditFilter(server="a"), before=before, limit=7)
        seen += [entry["name"] for entry in page]
        if before is None:
            break
    assert seen == [f"t{number}" for number in range(49, 0, -2)]


def test_lines_that_are_no_entries_are_skipped(tmp_path: Path) -> None:
    path = rotated(tmp_path)
    with open(path, "ab") as file:
        file.write(b'{"seq": "x", "at": 1}\n{"at": 1e99, "seq": 1}\n\xff\n[]\n')
    assert query_newest(path, limit=1)[0][0]["name"] == "t49"


def test_a_page_that_is_exactly_full_is_the_last(tmp_path: Path) -> None:
    page, more = query_newest(rotated(tmp_path), AuditFilter(server="a"), limit=25)
    assert (len(page), more) == (25, None)


def test_a_missing_trail_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no audit trail"):
        query_newest(tmp_path / "audit.jsonl", limit=1)
