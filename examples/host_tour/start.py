"""What ``make run`` starts: on a terminal the console, over a host with all reference servers; elsewhere the tour.

The servers work on a copy of a small sample project in a temporary folder; nothing of yours is read or changed. GitHub
and Slack are stand-ins, unless their tokens are in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from examples.code_review.github_double import GitHubDouble
from examples.code_review.slack_double import SlackDouble
from examples.host_tour.tour import HERE, NEXT
from examples.host_tour.tour import main as walk_the_tour
from examples.weather.screen import Screen
from examples.workspace.tour import CONFIG, prepare

__all__ = ["main", "show_console"]

_TRY = {
    "filesystem / write_file": "write a note; the policy asks first, and you answer in the inbox",
    "weather / show_weather": "a page of a server beside its result (MCP Apps), in the tab App",
    "sqlite / read_query": "select * from products, of a small made-up shop",
    "everything": "progress, pictures, forms, long jobs: one tool for each part of the protocol",
    "traffic": "every message between this host and its servers",
}


async def show_console(screen: Screen, folder: Path, *arguments: str) -> int:
    """Run the console over a sample workspace until Ctrl-C; return its exit code."""
    screen.heading("A host with all reference servers, in your browser")
    screen.say(
        f"""The servers work on a copy of a small project in {folder}. Those whose service is not on this machine say
        so, and what to do. Ctrl-C ends everything."""
    )
    for name, text in _TRY.items():
        screen.item(name, text)
    print(flush=True)
    async with AsyncExitStack() as stack:
        environ = prepare(folder / "workspace")
        environ |= await _stand_ins(stack)
        # A copy, since the console can change it. Approvals, grants and the audit trail are in the folder too.
        config = folder / "mcp.json"
        config.write_text(_configuration(environ))
        shutil.copy(CONFIG.with_name("issues_api.json"), folder)
        environ |= {"TRUNKLINE_HOME": str(folder / "home")}
        words = ["console", "-c", str(config), "--policy", str(HERE / "console_policy.toml"), *arguments]
        return await _run(words, environ)


def _configuration(environ: Mapping[str, str]) -> str:
    """Return the configuration of the workspace with its folders written out, and a server with a page (MCP Apps).

    The console masks the values of variables, which are often secrets, wherever they appear: every path in a result
    would be hidden.
    """
    text = CONFIG.read_text()
    for name in ("WORKSPACE_PYTHON", "WORKSPACE_FOLDER", "WORKSPACE_DATA"):
        text = re.sub(rf"\$\{{{name}[^}}]*\}}", json.dumps(environ[name])[1:-1].replace("\\", r"\\"), text)
    configuration = json.loads(text)
    weather = Path(__file__).parents[1] / "weather_app" / "server.py"
    configuration["mcpServers"]["weather"] = {"command": sys.executable, "args": [str(weather)]}
    return json.dumps(configuration, indent=2)


async def _stand_ins(stack: AsyncExitStack) -> dict[str, str]:
    found: dict[str, str] = {}
    if not os.environ.get("GITHUB_PERSONAL_ACCESS_TOKEN"):
        api = await stack.enter_async_context(GitHubDouble(token="stand-in").running())
        found |= {"GITHUB_PERSONAL_ACCESS_TOKEN": "stand-in", "GITHUB_API_URL": api}
    if not os.environ.get("SLACK_BOT_TOKEN"):
        api = await stack.enter_async_context(SlackDouble(token="stand-in").running())
        found |= {"SLACK_BOT_TOKEN": "stand-in", "SLACK_TEAM_ID": "T0ACME", "SLACK_API_URL": api}
    return found


async def _run(words: list[str], environ: Mapping[str, str]) -> int:
    """Run the command line until it ends; Ctrl-C is its own to handle."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "trunkline", *words, env=environ)
    loop = asyncio.get_running_loop()
    try:
        # At a terminal Ctrl-C reaches both processes; the other one then ends, and so does this.
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        loop.add_signal_handler(signal.SIGTERM, process.terminate)
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def main(*, interactive: bool | None = None) -> int:
    """Show the console on a terminal, and walk the tour elsewhere."""
    screen = Screen(interactive=interactive)
    if not screen.interactive:
        await walk_the_tour(interactive=False)
        return 0
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        code = await show_console(screen, Path(folder))
    screen.heading("What next")
    screen.item(
        "python -m examples.host_tour.tour", "the same in the terminal: a host, a model, approvals, the audit trail"
    )
    for command, what in NEXT.items():
        screen.item(command, what)
    return code


if __name__ == "__main__":
    try:
        raise SystemExit(asyncio.run(main()))
    except KeyboardInterrupt:
        print()
