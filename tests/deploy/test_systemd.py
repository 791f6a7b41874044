"""The units of systemd: accepted by systemd, hardened, and in agreement with the commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from trunkline.cli.commands import run, serve
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.supervisor import _KILL_AFTER

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = ["trunkline-books.service", "trunkline-gateway@.service"]
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(
    ANALYZE is None, reason="systemd-analyze is not installed (on Debian: apt install systemd)"
)


def settings(unit: str) -> dict[str, list[str]]:
    """Return the values of each setting of the section [Service]; raises on lines that are no settings."""
    text = (FOLDER / unit).read_text(encoding="utf-8")
    section, found = "", dict[str, list[str]]()
    for line in text.splitlines():
        if heading := re.fullmatch(r"\[(Unit|Service|Install)\]", line):
            section = heading[1]
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            assert re.fullmatch(r"[A-Z]\w+", name), line
            if section == "Service":
                found.setdefault(name, []).append(value)
    return found


def installed(unit: str, folder: Path) -> Path:
    """Write the unit with a program that exists in place of the one that an administrator installs."""
    text = (FOLDER / unit).read_text(encoding="utf-8")
    written = folder / unit
    written.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text), encoding="utf-8")
    return written


def verified(unit: Path) -> list[str]:
    """Return what systemd finds fault with; it also reports on other units of the machine."""
    assert ANALYZE is not None
    command = [ANALYZE, "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return [line for line in done.stderr.splitlines() if "trunkline-" in line]


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_it(unit: str, tmp_path: Path) -> None:
    assert verified(installed(unit, tmp_path)) == []


@needs_systemd
def test_a_mistake_would_be_noticed(tmp_path: Path) -> None:
    unit = installed(UNITS[0], tmp_path)
    unit.write_text(unit.read_text(encoding="utf-8").replace("KillMode=mixed", "KillMode=mixde"), encoding="utf-8")
    assert "kill mode" in "".join(verified(unit))


@needs_systemd
@pytest.mark.parametrize(("unit", "exposure"), [(UNITS[0], 2.0), (UNITS[1], 3.5)])
def test_it_is_hardened(unit: str, exposure: float, tmp_path: Path) -> None:
    """Systemd's own measure: 10 is a service without any hardening, below 4 is "OK"."""
    assert ANALYZE is not None
    command = [ANALYZE, "security", "--offline=true", "--no-pager", str(installed(unit, tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = re.search(r"Overall exposure level for \S+ (\d+\.\d+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= exposure


@pytest.mark.parametrize("unit", UNITS)
def test_requests_have_the_time_to_finish(unit: str) -> None:
    found = settings(unit)
    assert found["KillMode"] == ["mixed"], "the supervisor stops its workers"
    assert float(found["TimeoutStopSec"][0]) >= Limits().drain_seconds + _KILL_AFTER


@pytest.mark.parametrize("unit", UNITS)
def test_secrets_are_not_in_the_unit(unit: str) -> None:
    found = settings(unit)
    assert found["EnvironmentFile"][0].startswith("/etc/trunkline/")
    assert not any(
        re.search(r"KEY|TOKEN|redis://", value) for value in found["ExecStart"] + found.get("Environment", [])
    )


def test_the_commands_have_these_options() -> None:
    server, gateway = (shlex.split(settings(unit)["ExecStart"][0]) for unit in UNITS)
    assert (server[1], gateway[1]) == ("run", "serve")
    context = run.command.make_context("run", server[2:])
    assert (context.params["workers"], context.params["metrics"]) == (4, "9464")
    filled = [word.replace("${PORT}", "8080") for word in gateway[2:]]
    assert serve.command.make_context("serve", filled).params["address"].port == 8080
