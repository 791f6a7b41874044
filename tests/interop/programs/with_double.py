"""Runs a server's command beside a fresh double of the service it asks: ``with_double.py github node index.js``.

The command has this process's standard input and output, and the double's address in ``DOUBLE_URL`` and in the
variables that our servers read. A program of Node.js asks the double in place of the real service.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from examples.code_review.github_double import GitHubDouble
from examples.code_review.slack_double import SlackDouble
from servers.tests.sentry.fake_sentry import SentryDouble

TOKEN = "token-of-the-double"


async def run(service: str, command: list[str]) -> int:
    """Run the command until it ends; gives its exit code."""
    doubles = {"github": GitHubDouble, "slack": SlackDouble, "sentry": SentryDouble}
    async with doubles[service](token=TOKEN).running() as url:
        rewriting = Path(__file__).with_name("answer_from_double.mjs")
        environment = {**os.environ, "DOUBLE_URL": url, "NODE_OPTIONS": f"--import {rewriting}"}
        environment |= {f"{name}_API_URL": url for name in ("GITHUB", "SLACK", "SENTRY")}
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1], sys.argv[2:])))
