"""``python -m examples.code_review``: the review as a program.

Without arguments everything around it is a stand-in: GitHub, Slack, and, without a key, the model. On a terminal you
are the person who is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from examples.code_review.github_double import GitHubDouble
from examples.code_review.review import CONFIG, CONFIG_WITH_SLACK, HERE, Report, Setting, review
from examples.code_review.slack_double import SlackDouble
from examples.code_review.stage import check_out, github_server
from trunkline.host.consent import Answer, Face, Question
from trunkline.host.models.choosing import choose_model, open_model
from trunkline.host.models.interface import Model
from trunkline.host.models.script_files import read_script

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL")


def _consent(*, yes: bool) -> Face | None:
    """Give who is asked: whoever sits at the terminal; else nobody, unless the answer is yes beforehand."""
    from trunkline.cli.approvals import terminal_face

    face = terminal_face()
    if face is not None or not yes:
        return face

    async def agree(question: Question) -> Answer:
        print(f"? may {question.act.server}/{question.act.name} be called? - yes")
        return Answer(allow=True)

    return agree


def _model() -> Model | None:
    """Give the model that the environment has a key for."""
    choice = choose_model() if any(os.environ.get(name) for name in KEYS) else None
    return None if choice is None else open_model(choice)


async def _play(given: argparse.Namespace) -> Report:
    """Review pull request 42 of acme/project at the stand-ins."""
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
    """Review a pull request for real."""
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
            print("Nobody can be asked here, so nothing will be posted; --yes posts without asking.", file=sys.stderr)
        setting = Setting(model=model, consent=consent, config=config, environ=environ, settings={"era": given.era})
        return await review(given.repository, given.number, setting)


def main() -> int:
    """Review, print the report, and end with 1 if there were problems."""
    parser = argparse.ArgumentParser(prog="python -m examples.code_review", description=main.__doc__)
    parser.add_argument("repository", nargs="?", metavar="OWNER/REPO", help="without it, stand-ins are played")
    parser.add_argument("number", nargs="?", type=int, metavar="NUMBER", help="of the pull request")
    parser.add_argument("--folder", default=".", help="the checkout, else the current folder")
    parser.add_argument("--slack", action="store_true", help="use the configuration that has Slack, too")
    parser.add_argument("--era", default="auto", help="auto, handshake, stateless or a revision")
    parser.add_argument("--yes", action="store_true", help="post without asking, where nobody can be asked")
    given = parser.parse_args()
    if (given.repository is None) != (given.number is None):
        parser.error("give OWNER/REPO and the pull request's NUMBER, or neither")
    report = asyncio.run(_play(given) if given.repository is None else _work(given))
    print(f"\n{report}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
