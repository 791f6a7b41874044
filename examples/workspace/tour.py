"""A tour of a workspace with all reference servers: each starts and answers one call, or reports what is missing.

GitHub and Slack are stand-ins, unless a token is in the environment; the others are real. If a service is not running
here (a database, a container engine), its server answers with a message that says what to do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from examples.code_review.github_double import GitHubDouble
from examples.code_review.slack_double import SlackDouble
from examples.weather.screen import Screen
from trunkline import Host
from trunkline.errors import TrunklineError

__all__ = ["CONFIG", "asked", "calls", "main", "prepare", "walk"]

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "mcp.json"
_SECONDS = 60.0
_LOOKS, _LOOK_SECONDS = 50, 0.1


def prepare(folder: Path) -> dict[str, str]:
    """Copy the sample project, make it a git repository if possible, and return the variables of the configuration."""
    project, data = folder / "project", folder / "data"
    shutil.copytree(HERE / "project", project)
    data.mkdir(parents=True)
    if shutil.which("git"):
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false"]
        for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "Greet ships"]):
            subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, timeout=20)
    return {
        **os.environ,
        "WORKSPACE_PYTHON": sys.executable,
        "WORKSPACE_FOLDER": str(project),
        "WORKSPACE_DATA": str(data),
    }


def calls(project: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return one call for each server."""
    ship = {"name": "Fram", "entityType": "ship", "observations": ["was greeted in Norwegian"]}
    thought = {"thought": "Fog first.", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
    meeting = {"source_timezone": "Europe/Oslo", "time": "09:30", "target_timezone": "Asia/Tokyo"}
    return [
        ("filesystem/read_text_file", {"path": "README.md"}),
        ("git/git_log", {"repo_path": project}),
        ("sqlite/list_tables", {}),
        ("postgres/query", {"sql": "select 1"}),
        ("fetch/fetch", {"url": "http://169.254.169.254/latest/meta-data/"}),
        ("memory/create_entities", {"entities": [ship]}),
        ("time/convert_time", meeting),
        ("sequentialthinking/sequentialthinking", thought),
        ("everything/echo", {"message": "ahoy"}),
        ("github/get_pull_request", {"owner": "acme", "repo": "project", "pull_number": 42}),
        ("slack/slack_list_channels", {}),
        ("sentry/get_sentry_issue", {"issue_id_or_url": "1"}),
        ("npm/list_scripts", {"path": project}),
        ("docker/list_containers", {}),
        ("mongodb/list_databases", {}),
        ("redis/get", {"key": "ship"}),
        ("openapi/list_issues", {"owner": "acme", "repo": "project"}),
    ]


async def walk(screen: Screen, folder: Path) -> None:
    """Open a host with all of them, and make one call to each."""
    screen.say(
        """One host starts all reference servers, each as a process; this takes some seconds. GitHub and
        Slack are stand-ins, unless their tokens are in the environment."""
    )
    async with AsyncExitStack() as stack:
        environ = prepare(folder)
        if not os.environ.get("GITHUB_PERSONAL_ACCESS_TOKEN"):
            api = await stack.enter_async_context(GitHubDouble(token="stand-in").running())
            environ |= {"GITHUB_PERSONAL_ACCESS_TOKEN": "stand-in", "GITHUB_API_URL": api}
        if not os.environ.get("SLACK_BOT_TOKEN"):
            api = await stack.enter_async_context(SlackDouble(token="stand-in").running())
            environ |= {"SLACK_BOT_TOKEN": "stand-in", "SLACK_TEAM_ID": "T0ACME", "SLACK_API_URL": api}
        host = await stack.enter_async_context(
            Host.open(
                CONFIG,
                policy=HERE / "policy.toml",
                folder=folder / "state",
                environ=environ,
                wait_seconds=_SECONDS,
            )
        )
        status = {each.name: each for each in host.status()}
        ready = [each for each in status.values() if each.state == "ready"]
        screen.say(
            f"""{len(ready)} of {len(status)} are ready, with {len(host.catalog.tools)} tools. Each gets one call. A
            server whose service or token is missing says so, and what to do. fetch is asked for an address at which
            cloud machines publish their credentials, and refuses."""
        )
        for id, given in calls(environ["WORKSPACE_FOLDER"]):
            await asked(host, id, given, show=screen.item)


async def asked(host: Host, id: str, given: Mapping[str, Any], *, show: Callable[..., object]) -> None:
    """Make one call; show the beginning of the answer, or the whole error."""
    try:
        show(id, (await host.call_tool(id, dict(given))).text)
    except TrunklineError as error:
        show(id, f"({await _why_not(host, id) or error})", whole=True)


async def _why_not(host: Host, id: str) -> str | None:
    """Return the last line of the reason why a server is not ready; a server that is being restarted has none yet."""
    server = id.partition("/")[0]
    for _ in range(_LOOKS):
        status = next(each for each in host.status() if each.name == server)
        if status.state == "ready":
            return None
        if status.reason:
            return status.reason.strip().splitlines()[-1].removeprefix("error: ")
        await asyncio.sleep(_LOOK_SECONDS)
    return None


async def main(*, interactive: bool | None = None) -> None:
    """Run the tour."""
    screen = Screen(interactive=interactive)
    screen.heading("Every reference server")
    with tempfile.TemporaryDirectory() as folder:
        await walk(screen, Path(folder))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print()
