"""``python -m examples.code_review``: the review as a program.

Without arguments it uses stand-ins for GitHub, Slack and, without an API key, the model. On a terminal you are asked
for approval.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from examples.code_review.github_double import GitHubDouble
from examples.code_review.review import CONFIG, CONFIG_WITH_SLACK, HERE, Report, Setting, review
from examples.code_review.slack_double import SlackDouble
from examples.code_review.stage import check_out, github_server
from trunkline import ConfigError
from trunkline.host import ApprovalAnswer, ApprovalRequest, Model, Prompter, choose_model, open_model, read_script

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL")
INTERRUPTED = 130


def _consent(*, yes: bool) -> Prompter | None:
    """Return a prompter for the terminal; without one, None, or a function that approves if ``yes`` is set."""
    from trunkline.cli import terminal_prompter

    prompter = terminal_prompter()
    if prompter is not None or not yes:
        return prompter

    async def agree(request: ApprovalRequest) -> ApprovalAnswer:
        print(f"? May {request.act.server}/{request.act.name} be called? - yes, since there is no terminal to ask in")
        return ApprovalAnswer(allow=True)

    return agree


def _model() -> Model | None:
    """Return the model for which the environment has an API key."""
    choice = choose_model() if any(os.environ.get(name) for name in KEYS) else None
    return None if choice is None else open_model(choice)


async def _play(given: argparse.Namespace) -> Report:
    """Review pull request 42 of acme/project with the stand-ins."""
    double, team = GitHubDouble(token="stand-in"), SlackDouble(token="stand-in")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api, slack = await stack.enter_async_context(double.running()), await stack.enter_async_context(team.running())
        github = {"GITHUB_PERSONAL_ACCESS_TOKEN": "stand-in", "GITHUB_API_URL": api}
        served = await stack.enter_async_context(github_server(github))
        environ = {
            **os.environ,
            **served,
            "CODE_REVIEW_PYTHON": sys.executable,
            "CODE_REVIEW_FOLDER": str(check_out(folder / "checkout")),
            "SLACK_BOT_TOKEN": "stand-in",
            "SLACK_TEAM_ID": "T0ACME",
            "SLACK_CHANNEL_IDS": "C0REVIEWS",
            "SLACK_API_URL": slack,
        }
        setting = Setting(
            model=_model() or read_script(HERE / "script.toml"),
            consent=_consent(yes=True),
            config=CONFIG_WITH_SLACK if given.slack else CONFIG,
            folder=folder / "state",
            environ=environ,
            settings={"era": given.era},
        )
        return await review("acme/project", 42, setting)


async def _work(given: argparse.Namespace) -> Report:
    """Review a real pull request."""
    model = _model()
    if model is None:
        raise SystemExit(f"A model is needed: set one of {', '.join(KEYS)}.")
    if not os.environ.get("GITHUB_PERSONAL_ACCESS_TOKEN"):
        raise SystemExit("Set GITHUB_PERSONAL_ACCESS_TOKEN to a token that may read the repository and comment.")
    async with github_server({}) as served:
        environ = {**os.environ, **served, "CODE_REVIEW_PYTHON": sys.executable, "CODE_REVIEW_FOLDER": given.folder}
        config = CONFIG_WITH_SLACK if given.slack else CONFIG
        consent = _consent(yes=given.yes)
        if consent is None:
            print(
                "There is no terminal to ask in, so nothing will be posted; --yes posts without asking.",
                file=sys.stderr,
            )
        setting = Setting(model=model, consent=consent, config=config, environ=environ, settings={"era": given.era})
        return await review(given.repository, given.number, setting)


async def _reviewed(given: argparse.Namespace) -> Report:
    """Review; SIGTERM ends it as Ctrl-C does, so that the GitHub server's process is not left behind."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await (_play(given) if given.repository is None else _work(given))


def main() -> int:
    """Review and print the report; return 1 if there were problems, 130 if it was interrupted."""
    given = _arguments()
    try:
        report = asyncio.run(_reviewed(given))
    except ConfigError as error:
        report = Report(given.repository or "acme/project", given.number or 42, problems=[str(error)])
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nInterrupted: comments that were not approved before are not posted.", file=sys.stderr)
        return INTERRUPTED
    print(f"\n{report}")
    return 1 if report.problems else 0


def _arguments() -> argparse.Namespace:
    """Parse the command line; invalid arguments end the program."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.code_review",
        description="Let a model review a pull request on GitHub, and post each comment after you approve it. "
        "Without arguments it uses stand-ins for GitHub and Slack.",
    )
    parser.add_argument("repository", nargs="?", metavar="OWNER/REPO", help="where the pull request is, on GitHub")
    parser.add_argument("number", nargs="?", type=int, metavar="NUMBER", help="the number of the pull request")
    parser.add_argument("--folder", default=".", help="a checkout of its branch; default: the current folder")
    parser.add_argument("--slack", action="store_true", help="report the result to the team in Slack")
    parser.add_argument("--era", default="auto", help="auto, handshake, stateless, or a revision such as 2025-06-18")
    parser.add_argument("--yes", action="store_true", help="post without asking if there is no terminal")
    given = parser.parse_args()
    if (given.repository is None) != (given.number is None):
        parser.error("give OWNER/REPO and the pull request's NUMBER, or neither")
    if given.repository is not None and not all(given.repository.partition("/")):
        parser.error(f"{given.repository!r} is not OWNER/REPO, such as acme/project")
    if given.number is not None and given.number < 1:
        parser.error(f"{given.number} is not the number of a pull request")
    if not Path(given.folder).is_dir():
        parser.error(f"{given.folder} is not a folder: name the checkout of the pull request's branch")
    return given


if __name__ == "__main__":
    sys.exit(main())
