"""The tools that act on pull requests: review, comment, merge, update the branch.

A merge may require confirmation by the user through the client; exactly the commit that was shown is merged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from trunkline import Context, ToolError
from trunkline.servers.github.answers import answer
from trunkline.servers.github.arguments import (
    CREATES,
    DESTROYS,
    Body,
    Hints,
    Owner,
    PrNumber,
    PullNumber,
    Repo,
    Sha,
    chosen,
    commit_sha,
    given,
)
from trunkline.servers.github.calls import GitHub, check_file, picked
from trunkline.servers.github.shapes import COMMENT, REVIEW
from trunkline.types import TextContent

__all__ = ["HINTS", "Confirm", "Reviews"]

HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_pull_request_review", CREATES),
    ("merge_pull_request", DESTROYS),
    ("update_pull_request_branch", CREATES),
    ("post_review_comment", CREATES),
)

#: When the user must confirm a merge: if the client can ask, always (otherwise the merge fails), or never.
Confirm = Literal["auto", "always", "never"]

#: The client capability for confirmations.
_FORMS = "elicitation.form"
_MOST_COMMENTS = 100
Line = Annotated[int, Meta(ge=1, description="The line in the new version of the file; it must be in the diff")] | None
FilePath = Annotated[str | None, Meta(description="The file to comment on; without it the comment is a plain one")]
MergeTitle = Annotated[str | None, Meta(max_length=1_000, description="The first line of the merge commit")]
MergeText = Annotated[str | None, Meta(max_length=65_536, description="The rest of its message")]


class LineComment(Struct):
    """A comment of a review: where, and what."""

    path: Annotated[str, Meta(description="The path of the file")]
    body: Body
    line: Line = None
    position: Annotated[int, Meta(ge=1, description="Instead of line: how far down in the diff")] | None = None


class Reviews:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHub, *, confirm_merges: Confirm = "auto") -> None:
        self._github = github
        self._confirm: Confirm = confirm_merges

    async def create_pull_request_review(
        self,
        owner: Owner,
        repo: Repo,
        body: Body,
        event: Annotated[Literal["APPROVE", "REQUEST_CHANGES", "COMMENT"], Meta(description="The verdict")],
        pull_number: PullNumber = None,
        commit_id: Annotated[Sha, Meta(description="The commit that was reviewed, else the newest")] = None,
        comments: Annotated[list[LineComment] | None, Meta(max_length=_MOST_COMMENTS)] = None,
        pr_number: PrNumber = None,
    ) -> list[TextContent]:
        """Review a pull request: a verdict, and comments on lines, all at once."""
        number = chosen(pull_number, pr_number)
        remarks = None if comments is None else [_remark(each) for each in comments]
        asked = given(body=body, event=event, commit_id=commit_sha(commit_id, "commit_id"), comments=remarks)
        place = self._github.at(owner, repo, "pulls", number, "reviews")
        return answer(await self._github.write("POST", place, asked), REVIEW)

    async def post_review_comment(
        self,
        owner: Owner,
        repo: Repo,
        body: Annotated[Body, Meta(min_length=1)],
        pr_number: PullNumber = None,
        path: FilePath = None,
        line: Line = None,
        pull_number: Annotated[PrNumber, Meta(description="Another name of pr_number; give one of the two")] = None,
    ) -> list[TextContent]:
        """Comment on a pull request: on a line of a file, on a file, or, without path, on the whole."""
        github, number = self._github, chosen(pull_number, pr_number)
        github.need_token()
        if path is None:
            if line is not None:
                raise ToolError("line was given without path: say which file the line is in")
            return answer(
                await github.write("POST", github.at(owner, repo, "issues", number, "comments"), {"body": body})
            )
        file = check_file(path)
        place = github.at(owner, repo, "pulls", number)
        head = picked(await github.read(place), "head", "sha")
        where: dict[str, Any] = {"subject_type": "file"} if line is None else {"line": line, "side": "RIGHT"}
        asked = {"body": body, "commit_id": head, "path": file, **where}
        return answer(await github.write("POST", f"{place}/comments", asked), COMMENT)

    async def merge_pull_request(
        self,
        ctx: Context,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        commit_title: MergeTitle = None,
        commit_message: MergeText = None,
        merge_method: Literal["merge", "squash", "rebase"] | None = None,
        pr_number: PrNumber = None,
    ) -> list[TextContent]:
        """Merge a pull request into its base; the user may be asked first."""
        github, number = self._github, chosen(pull_number, pr_number)
        github.need_token()
        place = github.at(owner, repo, "pulls", number)
        asked = given(commit_title=commit_title, commit_message=commit_message, merge_method=merge_method)
        if self._confirm == "always" or (self._confirm == "auto" and ctx.client.supports(_FORMS)):
            asked["sha"] = await self._confirmed(ctx, place, f"{owner}/{repo}#{number}", merge_method or "merge")
        return answer(await github.write("PUT", f"{place}/merge", asked))

    async def _confirmed(self, ctx: Context, place: str, name: str, method: str) -> str:
        """Ask the user for confirmation, and return the commit that was shown."""
        if not ctx.client.supports(_FORMS):
            raise ToolError(
                "Merges are confirmed by the user here, and this client cannot ask them (it lacks elicitation); "
                "nothing was merged"
            )
        pull = await ctx.once("pull", self._summary, place)
        reply = await ctx.elicit(
            f"Merge pull request {name} ({pull['title']!r}) from {pull['head']} into {pull['base']} by {method}? "
            f"Its newest commit is {pull['sha'][:10]}."
        )
        if not reply.accepted:
            raise ToolError("The user did not confirm the merge; nothing was merged")
        return str(pull["sha"])

    async def _summary(self, place: str) -> dict[str, str]:
        pull = await self._github.read(place)
        sha = picked(pull, "head", "sha")
        return {
            "title": picked(pull, "title")[:200],
            # A deleted fork has no label.
            "head": pull["head"].get("label") or picked(pull, "head", "ref"),
            "base": picked(pull, "base", "ref"),
            "sha": sha,
        }

    async def update_pull_request_branch(
        self,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        expected_head_sha: Annotated[Sha, Meta(description="Only if this is still the newest commit")] = None,
        pr_number: PrNumber = None,
    ) -> list[TextContent]:
        """Bring a pull request's branch up to date with its base."""
        number = chosen(pull_number, pr_number)
        asked = given(expected_head_sha=commit_sha(expected_head_sha, "expected_head_sha"))
        await self._github.write("PUT", self._github.at(owner, repo, "pulls", number, "update-branch"), asked or None)
        return answer({"success": True})


def _remark(comment: LineComment) -> dict[str, Any]:
    if (comment.line is None) == (comment.position is None):
        raise ToolError(f"The comment on {comment.path} needs line or position, and not both")
    path = check_file(comment.path)
    return given(path=path, body=comment.body, line=comment.line, position=comment.position)
