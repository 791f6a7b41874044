"""What the GitHub server reads: every tool that changes nothing, against the double."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from examples.code_review.github_double import BUTTON_AFTER, BUTTON_PATH, GitHubDouble
from servers.tests.commands import started
from servers.tests.github.support import PROJECT, SECRET, staged
from servers.tests.over_http import texts
from trunkline import Client

READS = {
    *("get_file_contents", "get_issue", "get_pull_request", "get_pull_request_comments"),
    *("get_pull_request_files", "get_pull_request_reviews", "get_pull_request_status", "list_commits"),
    *("list_issues", "list_pull_requests", "search_code", "search_issues", "search_repositories"),
    "search_users",
}
WRITES = {
    *("add_issue_comment", "create_branch", "create_issue", "create_or_update_file", "create_pull_request"),
    *("create_pull_request_review", "create_repository", "fork_repository", "merge_pull_request", "push_files"),
    *("update_issue", "update_pull_request_branch"),
}


async def test_annotations_state_which_tools_read_and_which_overwrite() -> None:
    async with staged() as stage:
        hints = {tool.name: tool.annotations for tool in await stage.client.list_tools()}
    assert set(hints) == READS | WRITES | {"post_review_comment"}
    reads = {name for name, hint in hints.items() if hint is not None and hint.read_only_hint}
    destroys = {name for name, hint in hints.items() if hint is not None and hint.destructive_hint}
    assert reads == READS
    assert destroys == {"create_or_update_file", "push_files", "update_issue", "merge_pull_request"}


@pytest.mark.parametrize("name", ["pull_number", "pr_number"])
async def test_a_pull_request_is_shown_by_either_name_of_its_number(name: str) -> None:
    async with staged() as stage:
        pull = await stage.call("get_pull_request", **{name: 42})
    assert (pull["number"], pull["title"], pull["head"]["ref"]) == (
        42,
        "Allow markup in button labels",
        "button-markup",
    )
    assert "mergeable" not in pull, "only the members of the archived server are passed on"


async def test_a_pull_request_needs_exactly_one_number() -> None:
    tools = [*(name for name in READS if name.startswith("get_pull_request")), "update_pull_request_branch"]
    async with staged() as stage:
        none = [await stage.refused(tool) for tool in tools]
        both = await stage.refused("merge_pull_request", pull_number=42, pr_number=42)
        assert stage.double.seen == []
    assert [said for said in none if "is missing" not in said] == []
    assert "give one of them" in both


async def test_the_files_of_a_pull_request_come_with_patches() -> None:
    async with staged() as stage:
        (file,) = await stage.call("get_pull_request_files", pull_number=42)
    assert (file["filename"], file["status"]) == (BUTTON_PATH, "modified")
    assert "+    ><span dangerouslySetInnerHTML" in file["patch"]


async def test_the_status_is_that_of_the_newest_commit() -> None:
    async with staged() as stage:
        status = await stage.call("get_pull_request_status", pull_number=42)
        assert status["sha"] == stage.double.project.branches["button-markup"]
    assert status["state"] == "success"


async def test_a_file_is_given_as_text() -> None:
    async with staged() as stage:
        file = await stage.call("get_file_contents", path=BUTTON_PATH, branch="button-markup")
    assert (file["content"], file["encoding"]) == (BUTTON_AFTER, "utf-8")


async def test_a_file_that_is_no_text_stays_in_base64() -> None:
    async with staged() as stage:
        stage.double.project.commit("main", "Add a picture", {"a.png": "\udc89PNG"})
        file = await stage.call("get_file_contents", path="a.png")
    assert (file["content"].strip(), file["encoding"]) == ("iVBORw==", "base64")


@pytest.mark.parametrize(("path", "names"), [("", ["README.md", "src"]), ("src/", ["components", "index.ts"])])
async def test_a_folder_is_listed(path: str, names: list[str]) -> None:
    async with staged() as stage:
        listed = await stage.call("get_file_contents", path=path)
    assert [entry["name"] for entry in listed] == names


SEARCHES = [
    pytest.param(
        "search_repositories", {"query": "project language:ts"}, "full_name", "acme/project", id="repositories"
    ),
    pytest.param("search_code", {"q": "Buttons mostly"}, "path", "README.md", id="code"),
    pytest.param("search_issues", {"q": "bold is:open", "sort": "created"}, "number", 7, id="issues"),
    pytest.param("search_users", {"q": "acme"}, "login", "acme", id="users"),
]


@pytest.mark.parametrize(("tool", "arguments", "member", "value"), SEARCHES)
async def test_a_search_gives_what_was_found(tool: str, arguments: dict[str, Any], member: str, value: object) -> None:
    async with staged() as stage:
        found = texts(await stage.client.call_tool(tool, arguments))[0]
    assert f'"{member}": ' in found
    assert str(value) in found
    assert '"total_count": 1' in found


async def test_issues_are_listed_by_state_and_labels() -> None:
    async with staged() as stage:
        listed = await stage.call("list_issues", state="open", labels=["enhancement"], per_page=5)
        sent = stage.double.seen[-1].query
    assert [issue["number"] for issue in listed] == [7]
    assert sent == {"state": "open", "labels": "enhancement", "per_page": "5"}


async def test_pull_requests_and_commits_are_listed() -> None:
    async with staged() as stage:
        pulls = await stage.call("list_pull_requests", state="open", base="main")
        commits = await stage.call("list_commits", sha="button-markup", perPage=1)
        issue = await stage.call("get_issue", issue_number=7)
    assert [pull["number"] for pull in pulls] == [42]
    assert [commit["commit"]["message"] for commit in commits] == ["Allow markup in labels"]
    assert issue["title"] == "Labels should allow bold text"


async def test_without_a_token_public_data_is_read_and_no_authorization_is_sent() -> None:
    async with staged(token=None) as stage:
        assert (await stage.call("get_issue", issue_number=7))["number"] == 7
        assert [seen.authorization for seen in stage.double.seen] == [None]


async def test_without_a_token_a_private_repository_says_which_variable_to_set() -> None:
    async with staged(token=None) as stage:
        stage.double.project.private = True
        said = await stage.refused("get_issue", issue_number=7)
    assert "404" in said
    assert "GITHUB_PERSONAL_ACCESS_TOKEN" in said


async def test_a_wrong_token_says_which_variable_holds_it_and_not_what() -> None:
    async with staged(token="github_pat_wrong") as stage:
        said = await stage.refused("get_issue", issue_number=7)
    assert "GITHUB_PERSONAL_ACCESS_TOKEN (or GITHUB_TOKEN) is wrong or has expired" in said
    assert "github_pat_wrong" not in said


async def test_a_request_that_requires_authentication_asks_for_a_token_and_blames_none() -> None:
    async with staged(token=None) as stage:
        stage.double.refuse_once("GET", "/search/code", 401, {"message": "Requires authentication"})
        result = await stage.client.call_tool("search_code", {"q": "x"}, raise_on_error=False)
    (said,) = texts(result)
    assert "set GITHUB_PERSONAL_ACCESS_TOKEN for the server" in said
    assert "wrong" not in said


@pytest.mark.parametrize(
    ("token", "end"),
    [(SECRET, "in 10 minutes"), (None, "in 10 minutes; with GITHUB_PERSONAL_ACCESS_TOKEN set the limit is higher")],
    ids=["with-a-token", "without"],
)
async def test_a_rate_limit_says_when_to_try_again_and_what_would_help(token: str | None, end: str) -> None:
    async with staged(token=token) as stage:
        limit = {"message": "API rate limit exceeded"}
        stage.double.refuse_once("GET", "/issues/7", 403, limit, {"Retry-After": "600"})
        said = await stage.refused("get_issue", issue_number=7)
    assert said == f"GitHub answered 403: API rate limit exceeded. Its rate limit is reached: try again {end}"


async def test_a_full_page_says_that_there_may_be_more() -> None:
    async with staged() as stage:
        files = {f"f{number:03}.txt": "x" for number in range(100)}
        base = stage.double.project.trees[stage.double.project.branches["main"]]
        stage.double.project.commit("button-markup", "Many", {**base, **files})
        result = await stage.client.call_tool(
            "get_pull_request_files", {"owner": "acme", "repo": "project", "pull_number": 42}
        )
    assert texts(result)[1] == "Note: page 1 is full (100 items); there may be more on page 2."


PULL = {**PROJECT, "pr_number": 42}


@pytest.mark.parametrize("variable", ["GITHUB_PERSONAL_ACCESS_TOKEN", "GITHUB_TOKEN"])
async def test_the_token_comes_from_the_environment(variable: str) -> None:
    double = GitHubDouble(token=SECRET)
    async with (
        double.running() as url,
        Client(started("github", "--api-url", url, env={variable: SECRET}).server) as client,
    ):
        await client.call_tool("get_pull_request", PULL)
    assert double.seen[0].authorization == f"Bearer {SECRET}"


async def test_a_client_that_can_only_open_pages_is_not_asked_to_confirm_a_merge() -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}},
    }
    params = {"name": "merge_pull_request", "arguments": PULL, "_meta": meta}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) + "\n"
    async with GitHubDouble(token=SECRET).running() as url:
        env = {**os.environ, "GITHUB_PERSONAL_ACCESS_TOKEN": SECRET, "GITHUB_API_URL": url}
        program = [sys.executable, "-m", "trunkline_servers.github"]
        ended = await asyncio.to_thread(
            subprocess.run, program, env=env, input=call, capture_output=True, text=True, timeout=120, check=True
        )
    (content,) = json.loads(ended.stdout)["result"]["content"]
    assert json.loads(content["text"])["merged"] is True
