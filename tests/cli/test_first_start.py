"""The first start of many servers says how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.supervised import program
from trunkline.cli.first_start import FirstStartReport, start_progress
from trunkline.host.host import Host


async def test_the_progress_of_a_first_start_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go = tmp_path / "go"
    entries = {name: program(name, "slow_start", str(go)) for name in "abcd"}
    host = Host.open(entries, folder=tmp_path / "state", audit=False, wait="none")
    assert start_progress(host) == "starting the servers: 0 of 0 done, 0 tools"
    async with host, host.events() as events:
        report = FirstStartReport(host)
        assert start_progress(host) == "starting the servers: 0 of 4 done, 0 tools"
        go.touch()
        printed = ""
        async for _ in events:
            report.update()
            printed += capsys.readouterr().err
            if "4 of 4" in printed:
                break
    assert "first start of 4 servers: their tools are listed as they come" in printed
    assert "first start: 4 of 4 servers done, 4 tools" in printed


async def test_servers_whose_tools_are_known_are_no_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {name: program(name, "plain") for name in "abcd"}
    async with Host.open(entries, folder=tmp_path, audit=False):
        pass
    async with Host.open(entries, folder=tmp_path, audit=False, wait="kept") as host:
        FirstStartReport(host)
    assert capsys.readouterr().err == ""
