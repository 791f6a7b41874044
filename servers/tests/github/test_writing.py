"""What the GitHub server changes: every tool that writes, against the double; and no change is left unfinished."""

from __future__ import annotations

from typing import Any

import pytest

from examples.code_review.github_double import BUTTON_PATH
from servers.tests.github.support import PROJECT, staged


async def test_a_review_comment_stands_on_the_line_of_the_newest_commit() -> None:
    async with staged() as stage:
        said = await stage.call("post_review_comment", pr_number=42, body="Unsafe.", path=BUTTON_PATH, line=42)
        (kept,) = stage.double.project.review_comments[42]
        assert kept["commit_id"] == stage.double.project.branches["button-markup"]
        assert stage.double.seen[-1].body["side"] == "RIGHT"
    assert (kept["path"], kept["line"], kept["body"]) == (BUTTON_PATH, 42, "Unsafe.")
    assert said["html_url"] == kept["html_url"]


async def test_a_review_comment_without_path_is_a_plain_comment() -> None:
    async with staged() as stage:
        await stage.call("post_review_comment", pull_number=42, body="Thanks!")
        (kept,) = stage.double.project.comments[42]
        assert stage.double.project.review_comments == {}
    assert kept["body"] == "Thanks!"


async def test_a_review_comment_without_line_is_on_the_whole_file() -> None:
    async with staged() as stage:
        await stage.call("post_review_comment", pr_number=42, body="Split it.", path=BUTTON_PATH)
        assert stage.double.seen[-1].body["subject_type"] == "file"


WRONG_COMMENTS = [
    pytest.param({"line": 42}, "line was given without path", id="line-without-path"),
    pytest.param({"line": 1, "path": BUTTON_PATH}, "line must be part of the diff", id="line-outside-the-diff"),
    pytest.param({"line": 1, "path": "../secret"}, "is not a path in a repository", id="path-that-leads-elsewhere"),
    pytest.param({"pull_number": 42}, "give one of them", id="two-numbers"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG_COMMENTS)
async def test_an_invalid_review_comment_is_refused_and_nothing_is_posted(arguments: dict[str, Any], said: str) -> None:
    async with staged() as stage:
        assert said in await stage.refused("post_review_comment", pr_number=42, body="?", **arguments)
        assert (stage.double.project.comments, stage.double.project.review_comments) == ({}, {})


async def test_a_review_has_a_verdict_and_comments() -> None:
    async with staged() as stage:
        remark = {"path": BUTTON_PATH, "line": 42, "body": "Here."}
        review = await stage.call(
            "create_pull_request_review", pr_number=42, body="No.", event="REQUEST_CHANGES", comments=[remark]
        )
        assert len(stage.double.project.review_comments[42]) == 1
        listed = await stage.call("get_pull_request_reviews", pull_number=42)
        comments = await stage.call("get_pull_request_comments", pull_number=42)
    assert review["state"] == "CHANGES_REQUESTED"
    assert [one["id"] for one in listed] == [review["id"]]
    assert [one["body"] for one in comments] == ["Here."]


@pytest.mark.parametrize("place", [{}, {"line": 42, "position": 3}], ids=["neither", "both"])
async def test_a_comment_of_a_review_needs_line_or_position(place: dict[str, int]) -> None:
    async with staged() as stage:
        remark = {"path": BUTTON_PATH, "body": "Here.", **place}
        said = await stage.refused(
            "create_pull_request_review", pull_number=42, body="No.", event="COMMENT", comments=[remark]
        )
        assert stage.double.seen == []
    assert "needs line or position, and not both" in said


async def test_files_are_pushed_in_one_commit() -> None:
    async with staged() as stage:
        before = stage.double.project.branches["main"]
        files = [{"path": "a/b.txt", "content": "b"}, {"path": "README.md", "content": "new"}]
        moved = await stage.call("push_files", branch="main", files=files, message="Two files")
        tip = stage.double.project.branches["main"]
        assert stage.double.project.commits[tip]["parents"] == [before]
        assert stage.double.project.trees[tip]["a/b.txt"] == "b"
        assert stage.double.project.trees[tip][BUTTON_PATH]
    assert moved["object"]["sha"] == tip


@pytest.mark.parametrize("step", [("POST", "/git/trees"), ("POST", "/git/commits"), ("PATCH", "/git/refs/heads/main")])
async def test_a_push_that_fails_at_any_step_leaves_the_branch_as_it_was(step: tuple[str, str]) -> None:
    async with staged() as stage:
        before = stage.double.project.branches["main"]
        stage.double.refuse_once(*step, 500)
        await stage.refused("push_files", branch="main", files=[{"path": "a", "content": ""}], message="m")
        assert stage.double.project.branches["main"] == before


async def test_a_push_never_overwrites_a_concurrent_push() -> None:
    async with staged() as stage:
        stage.double.refuse_once("PATCH", "/git/refs/heads/main", 422, {"message": "Update is not a fast forward"})
        said = await stage.refused("push_files", branch="main", files=[{"path": "a", "content": ""}], message="m")
        assert stage.double.seen[-1].body["force"] is False
    assert said.startswith("Nothing was pushed: ")
    assert said.endswith("try again")


WRONG_PUSHES = [
    pytest.param([{"path": "a", "content": "1"}, {"path": "/a", "content": "2"}], "occurs twice", id="twice"),
    pytest.param([{"path": "a/../../b", "content": ""}], "is not a path in a repository", id="elsewhere"),
    pytest.param([{"path": "", "content": ""}], "is not a file path", id="empty"),
    pytest.param([{"path": "a", "content": "x" * (1024 * 1024 + 1)}], "up to 1048576", id="a-large-file"),
    pytest.param([{"path": str(n), "content": "x" * 1024 * 1024} for n in range(9)], "together", id="much"),
    pytest.param([{"path": str(n), "content": ""} for n in range(201)], "200", id="many"),
    pytest.param([], "1", id="none"),
]


@pytest.mark.parametrize(("files", "said"), WRONG_PUSHES)
async def test_a_push_with_a_wrong_file_sends_nothing(files: list[dict[str, str]], said: str) -> None:
    async with staged() as stage:
        assert said in await stage.refused("push_files", branch="main", files=files, message="m")
        assert stage.double.seen == []


@pytest.mark.parametrize(("path", "old"), [("new.txt", None), ("README.md", "# Project\n\nButtons, mostly.\n")])
async def test_a_file_is_created_or_replaced(path: str, old: str | None) -> None:
    async with staged() as stage:
        project = stage.double.project
        assert project.trees[project.branches["main"]].get(path) == old
        await stage.call("create_or_update_file", path=path, content="grüße", message="m", branch="main")
        assert project.trees[project.branches["main"]][path] == "grüße"


async def test_a_file_is_not_written_when_what_is_there_cannot_be_read() -> None:
    async with staged() as stage:
        stage.double.refuse_once("GET", "/contents/README.md", 500)
        await stage.refused("create_or_update_file", path="README.md", content="x", message="m", branch="main")
        assert [seen.method for seen in stage.double.seen] == ["GET"]


async def test_a_folder_is_not_written_over() -> None:
    async with staged() as stage:
        said = await stage.refused("create_or_update_file", path="src", content="x", message="m", branch="main")
    assert "is a folder" in said


async def test_a_branch_starts_at_the_default_branch_or_at_another() -> None:
    async with staged() as stage:
        branches = stage.double.project.branches
        await stage.call("create_branch", branch="feature/a")
        await stage.call("create_branch", branch="feature/b", from_branch="button-markup")
        assert branches["feature/a"] == branches["main"]
        assert branches["feature/b"] == branches["button-markup"]


async def test_issues_are_opened_changed_and_commented_on() -> None:
    async with staged() as stage:
        opened = await stage.call("create_issue", title="Focus ring", labels=["bug"], assignees=["ann"])
        number = opened["number"]
        closed = await stage.call("update_issue", issue_number=number, state="closed", title="Focus ring missing")
        await stage.call("add_issue_comment", issue_number=number, body="Done.")
        assert stage.double.project.comments[number][0]["body"] == "Done."
        assert stage.double.seen[1].body == {"state": "closed", "title": "Focus ring missing"}
    assert (closed["state"], closed["title"]) == ("closed", "Focus ring missing")


async def test_repositories_are_created_and_forked() -> None:
    async with staged() as stage:
        await stage.client.call_tool("create_repository", {"name": "new", "private": True, "autoInit": True})
        assert stage.double.seen[-1].body == {"name": "new", "private": True, "auto_init": True}
        fork = await stage.call("fork_repository", organization="other")
    assert (fork["full_name"], fork["parent"]["full_name"]) == ("other/project", "acme/project")


async def test_a_pull_request_is_opened_and_brought_up_to_date() -> None:
    async with staged() as stage:
        pull = await stage.call("create_pull_request", title="Again", head="button-markup", base="main", draft=True)
        done = await stage.call("update_pull_request_branch", pr_number=pull["number"])
        assert stage.double.project.pulls[pull["number"]]["draft"]
    assert done == {"success": True}


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("create_or_update_file", {"path": "a", "content": "", "message": "m", "branch": "main"}),
    ("push_files", {"branch": "main", "files": [{"path": "a", "content": ""}], "message": "m"}),
    ("create_issue", {"title": "t"}),
    ("create_branch", {"branch": "b"}),
    ("post_review_comment", {"pr_number": 42, "body": "b", "path": BUTTON_PATH, "line": 42}),
    ("merge_pull_request", {"pr_number": 42}),
]


async def test_without_a_token_a_change_says_which_variable_to_set_and_sends_nothing() -> None:
    async with staged(token=None) as stage:
        said = [await stage.refused(tool, **arguments) for tool, arguments in WRITES]
        assert [each for each in said if "GITHUB_PERSONAL_ACCESS_TOKEN" not in each] == []
        assert stage.double.seen == []


# --- merging ---------------------------------------------------------------------------------------------------------


def answering(answer: Any, asked: list[str]) -> dict[str, Any]:
    """Make options of a client whose user answers so; the questions are written down."""

    def ask(question: Any) -> Any:
        asked.append(question.message)
        return answer

    return {"elicitation": ask}


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_a_merge_is_confirmed_by_the_user_if_the_client_can_ask(revision: str) -> None:
    asked: list[str] = []
    async with staged(client={"revision": revision, **answering({}, asked)}) as stage:
        head = stage.double.project.branches["button-markup"]
        merged = await stage.call("merge_pull_request", pull_number=42, merge_method="squash")
        assert stage.double.seen[-1].body == {"merge_method": "squash", "sha": head}
    assert merged["merged"] is True
    (question,) = asked
    assert "acme/project#42 ('Allow markup in button labels') from acme:button-markup into main by squash" in question


async def test_a_merge_that_the_user_declines_is_not_made() -> None:
    asked: list[str] = []
    async with staged(client=answering(None, asked)) as stage:
        said = await stage.refused("merge_pull_request", pull_number=42)
        assert stage.double.project.pulls[42]["state"] == "open"
        assert {seen.method for seen in stage.double.seen} == {"GET"}
    assert said == "The user did not confirm the merge; nothing was merged"


async def test_a_merge_is_made_at_once_if_the_client_cannot_ask() -> None:
    async with staged() as stage:
        assert (await stage.call("merge_pull_request", pull_number=42))["merged"] is True


async def test_a_merge_is_refused_if_it_must_be_confirmed_and_the_client_cannot_ask() -> None:
    async with staged(confirm_merges="always") as stage:
        assert "cannot ask" in await stage.refused("merge_pull_request", pull_number=42)
        assert stage.double.seen == []


async def test_a_merge_is_not_asked_about_if_it_need_not_be_confirmed() -> None:
    asked: list[str] = []
    async with staged(confirm_merges="never", client=answering(None, asked)) as stage:
        await stage.client.call_tool("merge_pull_request", {**PROJECT, "pull_number": 42})
    assert asked == []


async def test_the_merged_commit_is_the_one_shown_to_the_user() -> None:
    def push_then_accept(_question: Any) -> dict[str, Any]:
        doubles[0].project.commit("button-markup", "Something else", {"evil.sh": "rm"})
        return {}

    doubles: list[Any] = []
    async with staged(client={"elicitation": push_then_accept}) as stage:
        doubles.append(stage.double)
        said = await stage.refused("merge_pull_request", pull_number=42)
        assert stage.double.project.pulls[42]["state"] == "open"
    assert "Head branch was modified" in said
