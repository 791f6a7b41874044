"""Arguments that lead to other paths, oversized responses, and a token that must not leak."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from aiohttp import web

from servers.tests.github.support import PROJECT, SECRET, staged
from servers.tests.over_http import texts
from trunkline import ConfigError
from trunkline_servers.github import make_server

#: Arguments that lead elsewhere.
ELSEWHERE: list[tuple[str, dict[str, Any]]] = [
    ("get_issue", {"owner": "..", "issue_number": 7}),
    ("get_issue", {"owner": "acme/project/../..", "issue_number": 7}),
    ("get_issue", {"repo": "project?x=", "issue_number": 7}),
    ("get_issue", {"repo": "project%2f..", "issue_number": 7}),
    ("get_issue", {"repo": "project#", "issue_number": 7}),
    ("get_issue", {"repo": "project\r\nX-Evil: 1", "issue_number": 7}),
    ("get_issue", {"owner": "@evil.example", "issue_number": 7}),
    ("get_file_contents", {"path": "../../../user"}),
    ("get_file_contents", {"path": "src/./../../../issues"}),
    ("get_file_contents", {"path": "a//b"}),
    ("get_file_contents", {"path": "a\x00b"}),
    ("get_file_contents", {"path": "a", "branch": "main&x=1 y"}),
    ("create_branch", {"branch": "../tags/v1"}),
    ("create_branch", {"branch": "-f"}),
    ("create_branch", {"branch": "a.lock"}),
    ("push_files", {"branch": "a@{1}", "files": [{"path": "a", "content": ""}], "message": "m"}),
    ("update_pull_request_branch", {"pull_number": 42, "expected_head_sha": "main"}),
    ("post_review_comment", {"pr_number": 42, "body": "b", "path": ""}),
    ("post_review_comment", {"pr_number": 42, "body": "b", "path": "/", "line": 1}),
    (
        "create_pull_request_review",
        {"pull_number": 42, "body": "b", "event": "COMMENT", "comments": [{"path": "", "body": "b", "line": 1}]},
    ),
    ("search_code", {"q": "x" * 1001}),
    ("list_issues", {"per_page": 101}),
    ("get_issue", {"issue_number": 0}),
    ("get_issue", {"issue_number": "7/../8"}),
    ("create_issue", {"title": "t", "body": "x" * 65_537}),
]


async def test_an_argument_that_leads_elsewhere_is_refused_before_anything_is_sent() -> None:
    async with staged() as stage:
        given = [
            (tool, arguments if tool == "search_code" else {**PROJECT, **arguments}) for tool, arguments in ELSEWHERE
        ]
        results = [await stage.client.call_tool(*call, raise_on_error=False) for call in given]
        assert [call for call, result in zip(given, results, strict=True) if not result.is_error] == []
        assert stage.double.seen == []


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("a b?c#d.txt", "/repos/acme/project/contents/a%20b%3Fc%23d.txt"),
        ("%2e%2e/x", "/repos/acme/project/contents/%252e%252e/x"),
        ("é/ü.txt", "/repos/acme/project/contents/%C3%A9/%C3%BC.txt"),
    ],
)
async def test_a_strange_path_is_quoted_whole(path: str, sent: str) -> None:
    async with staged() as stage:
        await stage.refused("get_file_contents", path=path)
        assert stage.double.seen[-1].path == sent


async def test_a_search_stays_one_parameter() -> None:
    async with staged() as stage:
        await stage.client.call_tool("search_issues", {"q": "a&sort=stars&q=b#c"})
        assert stage.double.seen[-1].query == {"q": "a&sort=stars&q=b#c"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("add_issue_comment", {"issue_number": 7, "body": "b"}),
        ("post_review_comment", {"pr_number": 42, "body": "b"}),
        ("create_issue", {"title": "t"}),
    ],
)
async def test_a_change_to_a_repository_that_was_renamed_is_no_success(tool: str, arguments: dict[str, Any]) -> None:
    async with staged() as stage:
        moved = {"message": "Temporary Redirect", "url": "x"}
        stage.double.refuse_once("POST", "/issues", 307, moved, {"Location": "/repositories/1/issues"})
        assert "nothing was changed" in await stage.refused(tool, **arguments)


@pytest.mark.parametrize(
    ("tool", "arguments", "path", "odd"),
    [
        ("get_pull_request_status", {"pull_number": 42}, "/pulls/42", None),
        (
            "post_review_comment",
            {"pr_number": 42, "body": "b", "path": "a", "line": 1},
            "/pulls/42",
            {"head": None, "object": []},
        ),
        ("create_branch", {"branch": "b"}, "/repos/acme/project", None),
        ("create_branch", {"branch": "b", "from_branch": "main"}, "/git/ref", [{"ref": "refs/heads/main-2"}]),
        (
            "push_files",
            {"branch": "main", "files": [{"path": "a", "content": ""}], "message": "m"},
            "/git/ref",
            {"head": None, "object": []},
        ),
        ("merge_pull_request", {"pull_number": 42}, "/pulls/42", None),
    ],
)
async def test_an_unexpected_response_is_reported_and_nothing_is_changed(
    tool: str, arguments: dict[str, Any], path: str, odd: Any
) -> None:
    async with staged(client={"elicitation": lambda question: {}}) as stage:
        stage.double.planned.append(("GET", re.compile(path), lambda: web.json_response(odd)))
        said = await stage.refused(tool, **arguments)
        assert {seen.method for seen in stage.double.seen} == {"GET"}
    assert said == "The response of GitHub is not as expected; nothing was changed"


async def test_a_token_that_github_repeats_is_not_passed_on_not_even_in_part(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with staged() as stage:
        stage.double.refuse_once("GET", "/issues/7", 400, {"message": "x" * 380 + SECRET})
        said = await stage.refused("get_issue", issue_number=7)
    assert said.endswith("x[token]")
    assert SECRET not in caplog.text


async def test_a_large_diff_is_truncated_with_a_note() -> None:
    async with staged() as stage:
        files = [{"filename": str(n), "patch": "+x\n" * 50_000} for n in range(5)]
        stage.double.refuse_once("GET", "/pulls/42/files", 200, files)
        arguments = {"owner": "acme", "repo": "project", "pull_number": 42}
        result = await stage.client.call_tool("get_pull_request_files", arguments)
    diff, note = texts(result)
    assert len(diff) < 400_000
    assert diff.count("[cut: 110000 more characters]") == 5
    assert "were cut" in note


async def test_a_long_list_is_truncated_with_a_note() -> None:
    async with staged() as stage:
        found = {"total_count": 400, "items": [{"body": "x" * 3_000, "number": n} for n in range(400)]}
        stage.double.refuse_once("GET", "/search/issues", 200, found)
        result = await stage.client.call_tool("search_issues", {"q": "x"})
    assert len(texts(result)[0]) < 400_000
    assert texts(result)[1].startswith("Note: only 1")


async def test_a_large_file_is_given_whole_or_not_at_all() -> None:
    async with staged() as stage:
        stage.double.project.commit("main", "Large", {"large.txt": "x" * (1024 * 1024 + 1)})
        assert "files up to 1048576 bytes can be read" in await stage.refused("get_file_contents", path="large.txt")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"token": SECRET, "api_url": "http://github.example.com/api/v3"}, id="token-in-the-open"),
        pytest.param({"token": "two words"}, id="token-with-a-space"),
        pytest.param({"token": f"{SECRET}\r\nX-Evil: 1"}, id="token-with-a-header"),
        pytest.param({"api_url": "file:///etc/passwd"}, id="no-http"),
        pytest.param({"api_url": f"https://user:{SECRET}@github.example.com"}, id="password-in-the-address"),
        pytest.param(
            {"token": "t" * 20, "api_url": f"http://user:{SECRET}@github.example.com"}, id="password-in-the-open"
        ),
        pytest.param({"api_url": f"ftp://user:{SECRET}@github.example.com"}, id="password-and-no-http"),
        pytest.param({"api_url": f"https://github.example.com/?token={SECRET}"}, id="token-in-the-address"),
    ],
)
def test_a_setting_that_would_leak_is_refused_without_repeating_it(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        make_server(**settings)  # type: ignore[arg-type]
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("odd", [None, "text", 7], ids=repr)
async def test_an_unexpected_response_for_a_file_is_reported(odd: Any) -> None:
    async with staged() as stage:
        stage.double.planned.append(("GET", re.compile("/contents/a"), lambda: web.json_response(odd)))
        assert "not as expected" in await stage.refused("get_file_contents", path="a")
