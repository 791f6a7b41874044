"""Saved calls: kept for the next console, run again, and compared with the last result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.console.support import library, on_console, refused
from trunkline import Server
from trunkline.console import saved_calls


def counter() -> Server:
    made, count = Server("c"), [0]

    @made.tool
    async def count_up(step: int = 1) -> dict[str, Any]:
        count[0] += step
        return {"count": count[0], "unit": "books"}

    return made


async def test_a_saved_call_shows_what_changed(tmp_path: Path) -> None:
    async with on_console({"c": counter()}, tmp_path) as stage, stage.client().listen() as page:
        body = {"name": "Count", "kind": "tool", "id": "c/count_up", "arguments": {"step": 0}}
        saved = (await page.post("/saved", body))["saved"]
        assert (saved["name"], saved["target"], saved["last"]) == ("Count", "c/count_up", None)
        first = await page.finished((await page.post(f"/saved/{saved['id']}/run"))["call"]["id"])
        assert (first["by"], first["changes"]) == ("saved", None)
        same = await page.finished((await page.post(f"/saved/{saved['id']}/run"))["call"]["id"])
        assert same["changes"] == {"same": True, "lines": []}
        await page.call("tool", "c/count_up", {"step": 5})
        other = await page.finished((await page.post(f"/saved/{saved['id']}/run"))["call"]["id"])
        assert other["changes"]["same"] is False
        assert any(line.startswith("+") and "5" in line for line in other["changes"]["lines"])
        [listed] = (await page.get("/saved"))["saved"]
        assert listed["last"]["summary"]
        assert (await page.get("/state"))["saved"] == [listed]
    async with on_console({"c": counter()}, tmp_path) as stage:
        page = stage.client()
        assert (await page.get("/saved"))["saved"] == [listed]
        await page.delete(f"/saved/{listed['id']}")
        assert (await page.get("/saved"))["saved"] == []
        failure = await refused(page.post(f"/saved/{listed['id']}/run"))
        assert failure.status == 404


async def test_a_call_is_saved_with_its_result(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        view = await page.call("resource", "lib/book://1")
        body = {"name": "", "kind": "resource", "id": "lib/book://1", "call": view["id"]}
        saved = (await page.post("/saved", body))["saved"]
        assert (saved["name"], saved["last"]["summary"]) == ("lib/book://1", "Emma")
        again = await page.finished((await page.post(f"/saved/{saved['id']}/run"))["call"]["id"])
    assert again["changes"] == {"same": True, "lines": []}


async def test_secrets_are_not_saved(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        stage.console.core.secrets.add(["hunter2-secret"])
        view = await page.call("tool", "lib/find", {"title": "hunter2-secret"})
        body = {"name": "x", "kind": "tool", "id": "lib/find", "arguments": {"title": "hunter2-secret"}}
        saved = (await page.post("/saved", {**body, "call": view["id"]}))["saved"]
        failure = await refused(page.post(f"/saved/{saved['id']}/run"))
        file = tmp_path / "state" / "console-calls.json"
        assert failure.code == "masked"
        assert b"hunter2" not in file.read_bytes()
        assert os.stat(file).st_mode & 0o077 == 0


async def test_saved_calls_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_calls, "_MOST_CALLS", 1)
    async with on_console({"lib": library()}, tmp_path) as stage:
        page = stage.client()
        body = {"name": "x", "kind": "tool", "id": "lib/find", "arguments": {}}
        await page.post("/saved", body)
        for wrong, status in (
            (body, 409),
            ({**body, "kind": "thing"}, 400),
            ({**body, "arguments": {"x": "y" * 300_000}}, 413),
            ({**body, "call": "none"}, 404),
        ):
            failure = await refused(page.post("/saved", wrong))
            assert failure.status == status


async def test_a_broken_file_of_saved_calls_does_not_break_the_console(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        (tmp_path / "state" / "console-calls.json").write_text("{")
        (tmp_path / "state" / "console-calls.json").chmod(0o600)
        assert (await stage.client().get("/state"))["saved"] == []
        failure = await refused(stage.client().get("/saved"))
    assert (failure.status, failure.code) == (400, "configuration")
