"""The review from end to end: real servers as processes and over HTTP, stand-ins for GitHub, Slack and the model."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from examples.code_review.__main__ import main
from examples.code_review.github_double import BUTTON_AFTER, GitHubDouble
from examples.code_review.review import CONFIG, CONFIG_WITH_SLACK, HERE, Report, Setting, review
from examples.code_review.slack_double import SlackDouble
from examples.code_review.stage import check_out
from trunkline import Server, StaticTokens
from trunkline.host import ApprovalAnswer, ApprovalRequest, read_script
from trunkline.server import CallNext, ServerRequest
from trunkline_servers.github import make_server

SECONDS = 50
TOKEN = "let-the-review-host-in"
ERAS = pytest.mark.parametrize("era", ["2025-06-18", "2026-07-28"])


@dataclass
class Stage:
    """What a review finds, and what it leaves."""

    github: GitHubDouble
    slack: SlackDouble
    server: Server
    folder: Path
    #: Who called the GitHub server, and what was declared.
    clients: list[tuple[str | None, Mapping[str, Any]]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    asked: list[ApprovalRequest] = field(default_factory=list)
    stop: Callable[[], Awaitable[None]] | None = None

    def setting(self, url: str, slack: str, era: str, *, without: tuple[str, ...] = (), **given: Any) -> Setting:
        """Return the options of a review; variables can be left out."""
        environ = {
            "CODE_REVIEW_PYTHON": sys.executable,
            "CODE_REVIEW_FOLDER": str(self.folder / "checkout"),
            "CODE_REVIEW_GITHUB_URL": url,
            "CODE_REVIEW_GITHUB_TOKEN": TOKEN,
            "SLACK_BOT_TOKEN": "stand-in",
            "SLACK_TEAM_ID": "T0ACME",
            "SLACK_CHANNEL_IDS": "C0REVIEWS",
            "SLACK_API_URL": slack,
        }
        usual = Setting(
            model=read_script(HERE / "script.toml"),
            consent=self.agree,
            folder=self.folder / "state",
            environ={name: value for name, value in environ.items() if name not in without},
            settings={"era": era},
            show=lambda line: None,
        )
        return replace(usual, **given)

    async def agree(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Approve everything, and record the request."""
        self.asked.append(question)
        return ApprovalAnswer(allow=True)

    async def look(self, request: ServerRequest, call_next: CallNext) -> Any:
        """Write down who calls the GitHub server, and for what."""
        if request.method == "tools/call":
            client = request.context.client
            self.clients.append((client.name, client.capabilities))
            self.calls.append((request.params.name, request.arguments))
        return await call_next(request)

    @property
    def remarks(self) -> list[Any]:
        """The comments on lines of pull request 42."""
        return self.github.repositories["acme/project"].review_comments.get(42, [])


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """Serve over HTTP in this process; gives the URL and how to end it."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        server.run_async("http", port=0, auth=StaticTokens({TOKEN: "reviewer"}), started=url.set_result)
    )

    async def stop() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    try:
        yield f"{await url}/mcp", stop
    finally:
        await stop()


def played(folder: Path, era: str, *, stages: list[Stage] | None = None, **given: Any) -> tuple[Report, Stage]:
    """Run a review to its end; a test that has to change the stage gets it in ``stages``."""

    async def main() -> tuple[Report, Stage]:
        github, slack = GitHubDouble(token="stand-in"), SlackDouble(token="stand-in")
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(github.running())
            slack_api = await stack.enter_async_context(slack.running())
            server = make_server(token="stand-in", api_url=api)
            stage = Stage(github, slack, server, folder)
            server.add_middleware(stage.look)
            check_out(folder / "checkout")
            url, stage.stop = await stack.enter_async_context(serving(server))
            if stages is not None:
                stages.append(stage)
            return await review("acme/project", 42, stage.setting(url, slack_api, era, **given)), stage

    return asyncio.run(asyncio.wait_for(main(), SECONDS))


@ERAS
def test_a_review_reads_fetches_analyses_and_posts_after_consent(tmp_path: Path, era: str) -> None:
    """The calls are those of the seeds' walk-through."""
    report, stage = played(tmp_path, era)

    assert report.problems == []
    assert report.read == ["src/components/Button.tsx"]
    assert [(each.where, each.outcome) for each in report.comments] == [("src/components/Button.tsx:42", "posted")]
    assert stage.calls == [
        ("get_pull_request", {"owner": "acme", "repo": "project", "pr_number": 42}),
        (
            "post_review_comment",
            {
                "owner": "acme",
                "repo": "project",
                "pr_number": 42,
                "body": "Consider extracting this logic into a separate function",
                "path": "src/components/Button.tsx",
                "line": 42,
            },
        ),
    ]
    assert [(each["path"], each["line"]) for each in stage.remarks] == [("src/components/Button.tsx", 42)]
    assert [each.act.name for each in stage.asked] == ["post_review_comment"]


@ERAS
def test_the_model_sees_the_file_as_it_is(tmp_path: Path, era: str) -> None:
    """What the filesystem server read is what the model was given."""
    model = read_script(HERE / "script.toml")
    played(tmp_path, era, model=model)

    assert BUTTON_AFTER.splitlines()[41] in str(model.requests[2])


@ERAS
def test_the_github_client_declares_elicitation_and_nothing_else(tmp_path: Path, era: str) -> None:
    """A server that may use elicitation is told so; it does not learn whether there is a model."""

    async def form(question: object) -> None:
        """Called with a form; it is not filled in."""

    _, stage = played(tmp_path, era, forms=form)

    assert {name for name, _ in stage.clients} == {"code-review-tool"}
    # The extensions are the host's own, and ask for nothing.
    assert [sorted(set(declared) - {"extensions"}) for _, declared in stage.clients] == [["elicitation"]] * 2


def test_the_filesystem_client_declares_nothing(tmp_path: Path) -> None:
    """It offers its server nothing to ask for; a recording of what it said shows it."""
    recording = tmp_path / "files.jsonl"
    command = shlex.join([sys.executable, "-m", "trunkline_servers.filesystem", str(tmp_path / "checkout")])
    config = json.loads(CONFIG.read_text())
    config["mcpServers"]["filesystem"] |= {
        "command": sys.executable,
        "args": ["-m", "trunkline", "record", command, "-o", str(recording)],
    }
    changed = tmp_path / "mcp.json"
    changed.write_text(json.dumps(config))

    report, _ = played(tmp_path, "2025-06-18", config=changed)

    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    said = [found for line in lines if (found := _initialize(line))]
    assert report.problems == []
    assert [set(each["params"]["capabilities"]) - {"extensions"} for each in said] == [set()]
    assert said[0]["params"]["clientInfo"] == {"name": "code-review-tool", "version": "1.0.0"}
    assert said[0]["params"]["protocolVersion"] == "2025-06-18"


def _initialize(value: Any) -> Any:
    """Find the opening message in a line of a recording."""
    match value:
        case {"method": "initialize"}:
            return value
        case dict():
            return next((found for each in value.values() if (found := _initialize(each))), None)
    return None


@ERAS
def test_refused_consent_posts_nothing(tmp_path: Path, era: str) -> None:
    """The model is told, and the report contains it."""

    async def refuse(question: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(allow=False)

    report, stage = played(tmp_path, era, consent=refuse)

    assert stage.remarks == []
    assert [name for name, _ in stage.calls] == ["get_pull_request"]
    assert [each.outcome for each in report.comments] == ["refused by you or the policy"]
    assert "nothing was posted" in str(report)


def test_without_anybody_to_ask_nothing_is_posted(tmp_path: Path) -> None:
    """Silence is a no."""
    report, stage = played(tmp_path, "2026-07-28", consent=None)

    assert (report.posted, stage.remarks) == ([], [])


@ERAS
def test_a_github_server_that_is_not_there_ends_with_a_readable_report(tmp_path: Path, era: str) -> None:
    """Nothing is thrown, and the report names the server and the reason."""
    unreachable = {
        "CODE_REVIEW_PYTHON": sys.executable,
        "CODE_REVIEW_FOLDER": str(tmp_path),
        "CODE_REVIEW_GITHUB_URL": "http://127.0.0.1:1/mcp",
        "CODE_REVIEW_GITHUB_TOKEN": TOKEN,
    }
    report, _ = played(tmp_path, era, environ=unreachable)

    (problem,) = report.problems
    assert problem.startswith("the server github is ")
    assert "127.0.0.1:1" in problem
    assert "nothing was posted" in str(report)


@ERAS
def test_a_github_server_that_dies_on_the_way_ends_with_a_readable_report(tmp_path: Path, era: str) -> None:
    """The comment that could not be posted is in the report, with the reason."""
    stages: list[Stage] = []

    async def kill(question: ApprovalRequest) -> ApprovalAnswer:
        (stage,) = stages
        assert stage.stop is not None
        await stage.stop()
        return ApprovalAnswer(allow=True)

    report, stage = played(tmp_path, era, stages=stages, consent=kill)

    (comment,) = report.comments
    assert comment.outcome.startswith("failed: ")
    assert stage.remarks == []
    assert "nothing was posted" in str(report)


# --- Slack -----------------------------------------------------------------------------------------------------------


def test_the_second_configuration_adds_slack_and_changes_nothing_else() -> None:
    """That one entry is all it takes."""
    plain, more = (json.loads(path.read_text())["mcpServers"] for path in (CONFIG, CONFIG_WITH_SLACK))

    assert set(more) - set(plain) == {"slack"}
    assert {name: more[name] for name in plain} == plain


@ERAS
def test_with_slack_the_team_is_told_after_consent(tmp_path: Path, era: str) -> None:
    """The program is the same; only the configuration differs."""
    report, stage = played(tmp_path, era, config=CONFIG_WITH_SLACK)

    assert report.problems == []
    assert [each.act.name for each in stage.asked] == ["post_review_comment", "slack_post_message"]
    assert report.announcements == ["acme/project#42 is reviewed: one remark on src/components/Button.tsx, line 42."]


def test_a_slack_server_that_is_not_there_is_a_problem_that_the_report_names(tmp_path: Path) -> None:
    """The review is made all the same."""
    report, stage = played(tmp_path, "2026-07-28", config=CONFIG_WITH_SLACK, without=("SLACK_BOT_TOKEN",))

    (problem,) = report.problems
    assert "slack" in problem
    assert "SLACK_BOT_TOKEN" in problem
    assert len(stage.remarks) == 1


def test_the_team_and_the_channels_of_slack_may_be_left_out(tmp_path: Path) -> None:
    """Only the token is needed."""
    without = ("SLACK_TEAM_ID", "SLACK_CHANNEL_IDS")
    report, _ = played(tmp_path, "2026-07-28", config=CONFIG_WITH_SLACK, without=without)

    assert (report.problems, len(report.announcements)) == ([], 1)


def test_the_model_can_find_out_which_channel_to_tell() -> None:
    """Channels are named by ids, which the model can only get from this tool."""
    slack = json.loads(CONFIG_WITH_SLACK.read_text())["mcpServers"]["slack"]

    assert slack["tools"] == ["slack_list_channels", "slack_post_message"]


# --- the program -----------------------------------------------------------------------------------------------------


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environ: str) -> int:
    """Run the program; gives its exit code."""
    usual = {"GITHUB_PERSONAL_ACCESS_TOKEN": "token", "TRUNKLINE_MODEL": f"scripted:{HERE / 'script.toml'}"}
    for name, value in {**usual, **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["code_review", *arguments])
    return main()


def test_a_github_server_that_does_not_start_ends_with_a_readable_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback: the server's own words."""
    code = ran(monkeypatch, "acme/project", "42", GITHUB_API_URL="nonsense")

    assert (code, capsys.readouterr().out.splitlines()) == (
        1,
        [
            "",
            "Review of acme/project#42",
            "  problem: the GitHub server did not start: error: The address of GitHub must be a URL such as "
            "https://api.example.com, not 'nonsense'",
            "  nothing was posted",
        ],
    )


def test_a_model_that_is_none_ends_with_a_readable_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback either."""
    assert ran(monkeypatch, "acme/project", "42", TRUNKLINE_MODEL="foo:bar") == 1
    assert "  problem: 'foo:bar' names no known model" in capsys.readouterr().out


def test_who_interrupts_the_review_sees_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code says so, as that of other programs does."""

    async def interrupted(given: object) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr("examples.code_review.__main__._play", interrupted)

    assert ran(monkeypatch) == 130


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["acme"], "give OWNER/REPO and the pull request's NUMBER", id="no number"),
        pytest.param(["acme", "42"], "'acme' is not OWNER/REPO", id="no repository"),
        pytest.param(["acme/project", "0"], "0 is not the number of a pull request", id="number"),
        pytest.param(["acme/project", "42", "--folder", "/no/such"], "/no/such is not a folder", id="folder"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    """With the way to say it right."""
    with pytest.raises(SystemExit):
        ran(monkeypatch, *arguments)

    assert sentence in capsys.readouterr().err
