"""Runs the official conformance suite against the server and the client beside this file: ``make conformance``.

The suite is an npm package, pinned here and kept in ``.conformance``. The server is started once and asked in every
revision; each scenario for clients is a run of its own, since only so the suite minds how the client ends. The verdict
is stricter than the suite's: a scenario passes if every check in it succeeded. A failure, a warning, a check that was
skipped, a run that ended badly or left no checks behind: none of these passes.

Exit status: 0 all passed, or there is no Node here to run the suite with; 1 something did not pass; 2 nothing could be
measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

__all__ = ["Leg", "Verdict", "judge", "main"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".conformance"
RESULTS = CACHE / "results"
#: The suite, and what drives its older scenarios: left alone, that one floats.
PACKAGES = {"conformance": "0.2.0-alpha.12", "sdk": "1.32.2"}
SCOPE = "@modelcontextprotocol"
OLDEST_NODE = 20
SCENARIO_SECONDS = 30
START_SECONDS = 60
# Longer than a server takes to finish what is in flight.
STOP_SECONDS = 40

# As the suite lists them and as it names the folders of results.
_LISTED = re.compile(r"^  - (\S+)", re.MULTILINE)
_FOLDER = re.compile(r"(?:(?:authorization-)?server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


class CannotRun(Exception):
    """Nothing can be measured; the text says why."""


class NoNode(CannotRun):
    """There is no Node here, or one that is too old."""


class Leg(NamedTuple):
    """One side in one revision."""

    side: str
    revision: str

    def __str__(self) -> str:
        return f"{self.side} {self.revision}"

    @property
    def folder(self) -> Path:
        """Where results go."""
        return RESULTS / f"{self.side}-{self.revision}"


_REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
LEGS = (
    *(Leg("server", revision) for revision in _REVISIONS),
    *(Leg("client", revision) for revision in _REVISIONS),
    *(Leg("authorization", revision) for revision in _REVISIONS),
)
#: Scenarios of extensions that this client has, and the revisions they are run in: the suite lists them in none.
_EXTENSIONS = (
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/enterprise-managed-authorization",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
)
_EXTENDED = ("2025-11-25", "2026-07-28")
#: Scenarios of extensions that the server has; the suite lists them in no revision, and means them for the newest.
_SERVER_EXTENSIONS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
    "sep-2640-skills-directory",
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
)
#: Scenarios whose only check the suite always skips: it looked for ``notifications/tasks`` where they are not sent, and
#: announces another version. Running them shows when that is there; our own tests cover those notifications meanwhile.
_UNWRITTEN = frozenset({"tasks-status-notifications"})
#: Checks that are skipped because they look for methods which the revision they are made for does not have.
_IMPOSSIBLE = frozenset(
    {
        ("http-standard-headers", "ClientMcpMethodHeader_initialize"),
        ("http-standard-headers", "ClientMcpMethodHeader_notifications_initialized"),
    }
)


class Verdict(NamedTuple):
    """What became of a scenario."""

    leg: Leg
    scenario: str
    succeeded: int
    total: int
    #: What is wrong; nothing if it passed.
    faults: tuple[str, ...]


class Suite:
    """The installed suite and the Node that runs it."""

    def __init__(self, node: str) -> None:
        """Find out whether this Node needs help to start the suite."""
        without_glob = _output([node, "-p", "!require('fs').globSync"]).strip() == "true"
        hook = ["--import", (HERE / "node20.mjs").as_uri()] if without_glob else []
        self._command = [node, *hook, str(_package("conformance") / "dist" / "index.js")]

    def scenarios(self, leg: Leg) -> list[str]:
        """List the scenarios of a leg, with those of extensions."""
        listed = _output([*self._command, "list", f"--{leg.side}", "--spec-version", leg.revision])
        more = _EXTENSIONS if leg.side == "client" and leg.revision in _EXTENDED else ()
        return list(dict.fromkeys((*_LISTED.findall(listed), *more)))

    def start(self, leg: Leg, *options: str, into: Path, output: BinaryIO) -> subprocess.Popen[bytes]:
        """Start a command of the suite that waits for somebody."""
        command = [*self._command, leg.side, *options, "--spec-version", leg.revision, "-o", str(into)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT)

    def run(self, leg: Leg, *options: str, into: Path, seconds: float) -> int | None:
        """Run a command of the suite; give its exit status, or None if it took too long."""
        command = [*self._command, leg.side, *options, "--spec-version", leg.revision, "-o", str(into)]
        limit = ["--timeout", str(SCENARIO_SECONDS * 1000)]
        into.mkdir(parents=True)
        with open(into / "log.txt", "wb") as log:
            try:
                ended = subprocess.run(
                    [*command, *limit], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, timeout=seconds
                )
            except subprocess.TimeoutExpired:
                return None
        return ended.returncode


# --- setting up -------------------------------------------------------------------------------------------------------


def installed_suite() -> Suite:
    """Install the suite unless it is there.

    Raises:
        CannotRun: there is no Node, or npm cannot install.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or int(_output([node, "-p", "process.versions.node"]).split(".")[0]) < OLDEST_NODE:
        raise NoNode(f"node {OLDEST_NODE} or newer and npm are needed")
    if any(_installed(name) != version for name, version in PACKAGES.items()):
        wanted = [f"{SCOPE}/{name}@{version}" for name, version in PACKAGES.items()]
        _say(f"== npm install {' '.join(wanted)}")
        CACHE.mkdir(exist_ok=True)
        (CACHE / "package.json").write_text('{"private": true}\n')
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]
        if subprocess.run([npm, "install", "--prefix", str(CACHE), *flags, *wanted]).returncode != 0:
            raise CannotRun("npm could not install the suite")
    return Suite(node)


def _package(name: str) -> Path:
    return CACHE / "node_modules" / SCOPE / name


def _installed(name: str) -> str | None:
    try:
        version: str = json.loads((_package(name) / "package.json").read_text())["version"]
    except FileNotFoundError:
        return None
    return version


def _output(command: Sequence[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        raise CannotRun(f"{shlex.join(command)} failed: {ended.stderr.strip()[-400:]}")
    return ended.stdout


class ServerUnderTest:
    """The server, running on a free port; ``with`` sees to it that it does not stay."""

    def __init__(self, program: str = "server.py", *options: str) -> None:
        """Start it and wait until it listens.

        Raises:
            CannotRun: it does not.
        """
        port = _free_port()
        command = [sys.executable, str(HERE / program), "--port", str(port), *options]
        written = RESULTS / f"{program}.txt"
        with open(written, "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        self._side = program.removesuffix(".py")
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"
        if not _listens(port, self._process):
            self._process.kill()
            self._process.wait()
            raise CannotRun(f"{program} did not start; see {_short(written)}")

    def __enter__(self) -> ServerUnderTest:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> Verdict:
        """Tell it to end, which it does in good order."""
        leg = Leg(self._side, "all")
        self._process.terminate()
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return Verdict(leg, "ends-when-told", 0, 1, (f"it still ran after {STOP_SECONDS} s",))
        return Verdict(leg, "ends-when-told", int(status == 0), 1, (f"exit status {status}",) * (status != 0))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.05)
    return False


# --- running ----------------------------------------------------------------------------------------------------------


def server_leg(suite: Suite, leg: Leg, *, url: str, only: re.Pattern[str]) -> Iterator[Verdict]:
    """Run all scenarios of a leg in one process of the suite: a server cannot end badly in between unnoticed."""
    yield from _server_core(suite, leg, url=url, only=only)
    if leg.revision == _REVISIONS[-1]:
        for scenario in filter(only.search, _SERVER_EXTENSIONS):
            yield server_extension(suite, leg, scenario, url=url)


def _server_core(suite: Suite, leg: Leg, *, url: str, only: re.Pattern[str]) -> Iterator[Verdict]:
    scenarios = suite.scenarios(leg)
    seconds = SCENARIO_SECONDS * max(4, len(scenarios) / 4)
    status = suite.run(leg, "--url", url, "--suite", "all", into=leg.folder, seconds=seconds)
    found = _checks(leg.folder)
    for scenario in scenarios:
        if only.search(scenario):
            yield judge(leg, scenario, found.get(scenario), faults=["the suite took too long"] * (status is None))


def server_extension(suite: Suite, leg: Leg, scenario: str, *, url: str) -> Verdict:
    """Run one scenario of an extension: the suite runs it only by its name, and if it is told to."""
    into = leg.folder / scenario
    options = ("--url", url, "--scenario", scenario, "--force")
    status = suite.run(leg, *options, into=into, seconds=2 * SCENARIO_SECONDS)
    faults = [] if status == 0 else ["took too long" if status is None else f"exit status {status}"]
    return judge(leg, scenario, _checks(into).get(scenario), faults=faults)


def client_scenario(suite: Suite, leg: Leg, scenario: str) -> Verdict:
    """Run one scenario; the suite's status also tells of a client that ended badly where it may not."""
    command = shlex.join([sys.executable, str(HERE / "client.py")])
    into = leg.folder / scenario.replace("/", "+")
    # The suite knows the revisions of its own scenarios only; those of extensions belong to none.
    forced = ("--force",) if scenario in _EXTENSIONS else ()
    options = ("--command", command, "--scenario", scenario, *forced)
    status = suite.run(leg, *options, into=into, seconds=2 * SCENARIO_SECONDS)
    faults = [] if status == 0 else ["took too long" if status is None else f"exit status {status}"]
    return judge(leg, scenario, _checks(into).get(scenario), faults=faults)


def authorization_leg(suite: Suite, leg: Leg, *, server: ServerUnderTest, only: re.Pattern[str]) -> Iterator[Verdict]:
    """Run both scenarios at once: the second builds on the first, and waits for somebody who follows its link."""
    options = ("--url", server.origin, "--client-id", "conformance", "--resource", server.url, "-p", str(_free_port()))
    leg.folder.mkdir(parents=True)
    log = leg.folder / "log.txt"
    with open(log, "wb") as output, suite.start(leg, *options, into=leg.folder, output=output) as process:
        followed = _follow_link(log, re.escape(server.origin) + r"/authorize\?\S+", process)
        try:
            status: int | None = process.wait(SCENARIO_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
    faults = [f"exit status {status}"] * (status != 0) + ["no link to follow"] * (not followed)
    found = _checks(leg.folder)
    for scenario in suite.scenarios(leg):
        if only.search(scenario):
            yield judge(leg, scenario, found.get(scenario), faults=faults)


def _follow_link(log: Path, link: str, process: subprocess.Popen[bytes]) -> bool:
    """Follow the link that the suite prints, as a person's browser would."""
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        found = re.search(link, log.read_text(errors="replace"))
        if found is not None:
            with contextlib.suppress(OSError), urllib.request.urlopen(found[0], timeout=SCENARIO_SECONDS):
                return True
        time.sleep(0.05)
    return False


def judge(leg: Leg, scenario: str, checks: Sequence[dict[str, Any]] | None, *, faults: Iterable[str] = ()) -> Verdict:
    """Decide on a scenario: every check that is more than a remark must have succeeded, and there must be one.

    A verdict without checks and without faults is of a scenario that the suite itself has still to write.
    """
    real = [check for check in checks or () if not _is_remark(scenario, check)]
    if scenario in _UNWRITTEN and [check["status"] for check in real] == ["SKIPPED"]:
        return Verdict(leg, scenario, 0, 0, tuple(faults))
    failed = [check for check in real if check["status"] != "SUCCESS"]
    wrong = [*faults, *(f"{each['status']} {each['id']} ({each['name']}): {_reason(each)}" for each in failed)]
    if not real:
        wrong.append("no checks were recorded")
    return Verdict(leg, scenario, len(real) - len(failed), len(real), tuple(wrong))


def _is_remark(scenario: str, check: dict[str, Any]) -> bool:
    skipped = check["status"] == "SKIPPED"
    return check["status"] == "INFO" or (skipped and (scenario, check["name"]) in _IMPOSSIBLE)


def _reason(check: dict[str, Any]) -> str:
    return str(check.get("errorMessage") or check.get("description") or "no reason given")


def _checks(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the checks that the suite wrote, by scenario."""
    files = folder.rglob("checks.json")
    found = ((_FOLDER.fullmatch(path.parent.relative_to(folder).as_posix()), path) for path in files)
    return {name[1]: json.loads(path.read_text()) for name, path in found if name is not None}


def run(suite: Suite, legs: Sequence[Leg], *, only: re.Pattern[str], jobs: int) -> Iterator[Verdict]:
    """Run legs and give each verdict as it comes."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    servers = [leg for leg in legs if leg.side == "server"]
    if servers:
        with ServerUnderTest() as server:
            for leg in servers:
                yield from server_leg(suite, leg, url=server.url, only=only)
            yield server.stop()
    issuers = [leg for leg in legs if leg.side == "authorization"]
    if issuers:
        with ServerUnderTest("authorization_server.py", "--auto-consent") as server:
            for leg in issuers:
                yield from authorization_leg(suite, leg, server=server, only=only)
            yield server.stop()
    clients = [leg for leg in legs if leg.side == "client"]
    wanted = [(leg, name) for leg in clients for name in suite.scenarios(leg) if only.search(name)]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda each: client_scenario(suite, *each), wanted)


# --- telling ----------------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _tell(verdict: Verdict) -> None:
    mark = "FAIL" if verdict.faults else "pass" if verdict.total else "skip"
    _say(f"{mark}  {verdict.leg}  {verdict.scenario}  {verdict.succeeded}/{verdict.total}")
    for fault in verdict.faults:
        _say(f"        {fault}")


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    rows = [f"{'leg':<28}{'scenarios':>10}{'checks':>10}"]
    for leg in dict.fromkeys(verdict.leg for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.leg == leg and (verdict.total or verdict.faults)]
        passed = f"{sum(not verdict.faults for verdict in own)}/{len(own)}"
        checks = f"{sum(verdict.succeeded for verdict in own)}/{sum(verdict.total for verdict in own)}"
        rows.append(f"{leg!s:<28}{passed:>10}{checks:>10}")
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the official conformance suite.")
    names = [f"{leg.side}-{leg.revision}" for leg in LEGS]
    parser.add_argument("leg", nargs="*", help=f"what to run: {', '.join(names)}; a part of a name will do")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="a pattern that scenarios must match")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="client scenarios at once")
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for, everything if it asks for nothing, and give the exit status."""
    given = _arguments()
    legs = [leg for leg in LEGS if not given.leg or any(part in f"{leg.side}-{leg.revision}" for part in given.leg)]
    verdicts: list[Verdict] = []
    try:
        suite = installed_suite()
        for verdict in run(suite, legs, only=given.only, jobs=given.jobs):
            verdicts.append(verdict)
            _tell(verdict)
    except NoNode as missing:
        _say(f"skipped: {missing}")
        return 0
    except CannotRun as problem:
        _say(f"cannot run the conformance suite: {problem}")
        return 2
    _say("\n".join(_table(verdicts)))
    if not verdicts:
        _say("no scenario matches")
        return 2
    failed = sum(bool(verdict.faults) for verdict in verdicts)
    _say(f"{failed} of {len(verdicts)} did not pass; see {_short(RESULTS)}" if failed else "OK: all passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
