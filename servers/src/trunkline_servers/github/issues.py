"""The tools for issues and pull requests.

Reading, opening, reviewing, commenting and merging, where the user may be asked to confirm a merge.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from trunkline import Context, ToolError
from trunkline.types import TextContent
from trunkline_servers.github.client import (
    CHANGES,
    COMMENT,
    CREATES,
    DESTROYS,
    FILE_CHANGED,
    PULL,
    READS,
    REVIEW,
    STATUS,
    Body,
    Direction,
    FieldSelection,
    GitHubClient,
    Hints,
    Number,
    OptionalBody,
    OptionalNumber,
    Owner,
    Page,
    PerPage,
    PrNumber,
    PullNumber,
    Repo,
    Sha,
    Title,
    check_file,
    commit_sha,
    page_note,
    pull_request_number,
    text_at,
    to_content,
    without_none,
)

__all__ = [
    "ISSUE_HINTS",
    "PULL_REQUEST_HINTS",
    "REVIEW_HINTS",
    "ConfirmMerges",
    "IssueTools",
    "PullRequestTools",
    "ReviewTools",
]

ISSUE_HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_issue", CREATES),
    ("list_issues", READS),
    ("update_issue", CHANGES),
    ("add_issue_comment", CREATES),
    ("get_issue", READS),
)

_Short = Annotated[str, Meta(min_length=1, max_length=100)]
Labels = Annotated[list[_Short] | None, Meta(max_length=100, description="Names of labels")]
Assignees = Annotated[list[_Short] | None, Meta(max_length=10, description="Logins of the people to assign")]
Since = Annotated[str | None, Meta(max_length=40, description="Changed since this time, such as 2026-01-31T00:00:00Z")]


class IssueTools:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHubClient) -> None:
        self._github = github

    async def create_issue(
        self,
        owner: Owner,
        repo: Repo,
        title: Title,
        body: OptionalBody = None,
        assignees: Assignees = None,
        milestone: OptionalNumber = None,
        labels: Labels = None,
    ) -> list[TextContent]:
        """Open an issue."""
        asked = without_none(title=title, body=body, assignees=assignees, milestone=milestone, labels=labels)
        return to_content(await self._github.write("POST", self._github.repository_path(owner, repo, "issues"), asked))

    async def list_issues(
        self,
        owner: Owner,
        repo: Repo,
        direction: Direction = None,
        labels: Labels = None,
        page: Page = None,
        per_page: PerPage = None,
        since: Since = None,
        sort: Literal["created", "updated", "comments"] | None = None,
        state: Literal["open", "closed", "all"] | None = None,
    ) -> list[TextContent]:
        """List the issues of a repository; pull requests are among them."""
        asked = without_none(direction=direction, page=page, per_page=per_page, since=since, sort=sort, state=state)
        if labels:
            asked["labels"] = ",".join(labels)
        return to_content(await self._github.read(self._github.repository_path(owner, repo, "issues"), asked))

    async def update_issue(
        self,
        owner: Owner,
        repo: Repo,
        issue_number: Number,
        title: Annotated[str | None, Meta(min_length=1, max_length=1_000)] = None,
        body: OptionalBody = None,
        assignees: Assignees = None,
        milestone: OptionalNumber = None,
        labels: Labels = None,
        state: Literal["open", "closed"] | None = None,
    ) -> list[TextContent]:
        """Update an issue: given fields replace the existing ones."""
        asked = without_none(
            title=title, body=body, assignees=assignees, milestone=milestone, labels=labels, state=state
        )
        return to_content(
            await self._github.write("PATCH", self._github.repository_path(owner, repo, "issues", issue_number), asked)
        )

    async def add_issue_comment(self, owner: Owner, repo: Repo, issue_number: Number, body: Body) -> list[TextContent]:
        """Comment on an issue or a pull request."""
        place = self._github.repository_path(owner, repo, "issues", issue_number, "comments")
        return to_content(await self._github.write("POST", place, {"body": body}))

    async def get_issue(self, owner: Owner, repo: Repo, issue_number: Number) -> list[TextContent]:
        """Show an issue."""
        return to_content(await self._github.read(self._github.repository_path(owner, repo, "issues", issue_number)))


PULL_REQUEST_HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_pull_request", CREATES),
    ("get_pull_request", READS),
    ("list_pull_requests", READS),
    ("get_pull_request_files", READS),
    ("get_pull_request_status", READS),
    ("get_pull_request_comments", READS),
    ("get_pull_request_reviews", READS),
)

_ALL = 100

Head = Annotated[str, Meta(max_length=355, description="The branch with the changes; owner:branch if in a fork")]
Base = Annotated[str, Meta(max_length=255, description="The branch to merge into")]
OfHead = Annotated[str | None, Meta(max_length=355, description="Only those from this branch, as owner:branch")]
OfBase = Annotated[str | None, Meta(max_length=255, description="Only those into this branch")]


class PullRequestTools:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHubClient) -> None:
        self._github = github

    async def create_pull_request(
        self,
        owner: Owner,
        repo: Repo,
        title: Title,
        head: Head,
        base: Base,
        body: OptionalBody = None,
        draft: Annotated[bool | None, Meta(description="Whether it is a draft")] = None,
        maintainer_can_modify: Annotated[bool | None, Meta(description="Whether maintainers may push to it")] = None,
    ) -> list[TextContent]:
        """Open a pull request."""
        asked = without_none(
            title=title, body=body, head=head, base=base, draft=draft, maintainer_can_modify=maintainer_can_modify
        )
        return to_content(
            await self._github.write("POST", self._github.repository_path(owner, repo, "pulls"), asked), PULL
        )

    async def get_pull_request(
        self, owner: Owner, repo: Repo, pull_number: PullNumber = None, pr_number: PrNumber = None
    ) -> list[TextContent]:
        """Show a pull request; get_pull_request_files has its changes."""
        number = pull_request_number(pull_number, pr_number)
        return to_content(await self._github.read(self._github.repository_path(owner, repo, "pulls", number)), PULL)

    async def list_pull_requests(
        self,
        owner: Owner,
        repo: Repo,
        state: Literal["open", "closed", "all"] | None = None,
        head: OfHead = None,
        base: OfBase = None,
        sort: Literal["created", "updated", "popularity", "long-running"] | None = None,
        direction: Direction = None,
        per_page: PerPage = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the pull requests of a repository."""
        asked = without_none(
            state=state, head=head, base=base, sort=sort, direction=direction, per_page=per_page, page=page
        )
        return to_content(await self._github.read(self._github.repository_path(owner, repo, "pulls"), asked), PULL)

    async def get_pull_request_files(
        self,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        pr_number: PrNumber = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the files that a pull request changes, with patches; 100 on a page."""
        number = pull_request_number(pull_number, pr_number)
        return await self._listed(owner, repo, number, "files", page, FILE_CHANGED)

    async def get_pull_request_status(
        self, owner: Owner, repo: Repo, pull_number: PullNumber = None, pr_number: PrNumber = None
    ) -> list[TextContent]:
        """Show the status of the checks of a pull request's newest commit."""
        number = pull_request_number(pull_number, pr_number)
        pull = await self._github.read(self._github.repository_path(owner, repo, "pulls", number))
        sha = text_at(pull, "head", "sha")
        return to_content(
            await self._github.read(self._github.repository_path(owner, repo, "commits", sha, "status")), STATUS
        )

    async def get_pull_request_comments(
        self,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        pr_number: PrNumber = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the comments on lines of a pull request; 100 on a page."""
        number = pull_request_number(pull_number, pr_number)
        return await self._listed(owner, repo, number, "comments", page, COMMENT)

    async def get_pull_request_reviews(
        self,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        pr_number: PrNumber = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the reviews of a pull request; 100 on a page."""
        number = pull_request_number(pull_number, pr_number)
        return await self._listed(owner, repo, number, "reviews", page, REVIEW)

    async def _listed(
        self, owner: str, repo: str, number: int, what: str, page: int | None, shape: FieldSelection
    ) -> list[TextContent]:
        page = page or 1
        place = self._github.repository_path(owner, repo, "pulls", number, what)
        items = await self._github.read(place, {"per_page": _ALL, "page": page})
        return to_content(items, shape, note=page_note(items, page, _ALL))


REVIEW_HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_pull_request_review", CREATES),
    ("merge_pull_request", DESTROYS),
    ("update_pull_request_branch", CREATES),
    ("post_review_comment", CREATES),
)

#: When the user must confirm a merge: if the client can ask, always (otherwise the merge fails), or never.
ConfirmMerges = Literal["auto", "always", "never"]

#: The client capability for confirmations.
_FORMS = "elicitation.form"
_MOST_COMMENTS = 100
Line = Annotated[int, Meta(ge=1, description="The line in the new version of the file; it must be in the diff")] | None
FilePath = Annotated[
    str | None, Meta(description="The file to comment on; without it the comment is on the whole pull request")
]
MergeTitle = Annotated[str | None, Meta(max_length=1_000, description="The first line of the merge commit")]
MergeText = Annotated[str | None, Meta(max_length=65_536, description="The rest of its message")]


class LineComment(Struct):
    """A comment of a review: its location and text."""

    path: Annotated[str, Meta(description="The path of the file")]
    body: Body
    line: Line = None
    position: Annotated[int, Meta(ge=1, description="Instead of line: the position in the diff")] | None = None


class ReviewTools:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHubClient, *, confirm_merges: ConfirmMerges = "auto") -> None:
        self._github = github
        self._confirm: ConfirmMerges = confirm_merges

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
        number = pull_request_number(pull_number, pr_number)
        remarks = None if comments is None else [_comment_body(each) for each in comments]
        asked = without_none(body=body, event=event, commit_id=commit_sha(commit_id, "commit_id"), comments=remarks)
        place = self._github.repository_path(owner, repo, "pulls", number, "reviews")
        return to_content(await self._github.write("POST", place, asked), REVIEW)

    async def post_review_comment(
        self,
        owner: Owner,
        repo: Repo,
        body: Annotated[Body, Meta(min_length=1)],
        pr_number: PullNumber = None,
        path: FilePath = None,
        line: Line = None,
        pull_number: Annotated[PrNumber, Meta(description="Alternative name of pr_number; give one of the two")] = None,
    ) -> list[TextContent]:
        """Comment on a pull request: on a line of a file, on a file, or, without path, on the whole."""
        github, number = self._github, pull_request_number(pull_number, pr_number)
        github.need_token()
        if path is None:
            if line is not None:
                raise ToolError("line was given without path: give the file that the line is in")
            return to_content(
                await github.write(
                    "POST", github.repository_path(owner, repo, "issues", number, "comments"), {"body": body}
                )
            )
        file = check_file(path)
        place = github.repository_path(owner, repo, "pulls", number)
        head = text_at(await github.read(place), "head", "sha")
        where: dict[str, Any] = {"subject_type": "file"} if line is None else {"line": line, "side": "RIGHT"}
        asked = {"body": body, "commit_id": head, "path": file, **where}
        return to_content(await github.write("POST", f"{place}/comments", asked), COMMENT)

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
        github, number = self._github, pull_request_number(pull_number, pr_number)
        github.need_token()
        place = github.repository_path(owner, repo, "pulls", number)
        asked = without_none(commit_title=commit_title, commit_message=commit_message, merge_method=merge_method)
        if self._confirm == "always" or (self._confirm == "auto" and ctx.client.supports(_FORMS)):
            asked["sha"] = await self._confirmed(ctx, place, f"{owner}/{repo}#{number}", merge_method or "merge")
        return to_content(await github.write("PUT", f"{place}/merge", asked))

    async def _confirmed(self, ctx: Context, place: str, name: str, method: str) -> str:
        """Ask the user for confirmation, and return the commit that was shown."""
        if not ctx.client.supports(_FORMS):
            raise ToolError(
                "Merges must be confirmed by the user, and this client cannot ask (it lacks elicitation); "
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
        sha = text_at(pull, "head", "sha")
        return {
            "title": text_at(pull, "title")[:200],
            # A deleted fork has no label.
            "head": pull["head"].get("label") or text_at(pull, "head", "ref"),
            "base": text_at(pull, "base", "ref"),
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
        number = pull_request_number(pull_number, pr_number)
        asked = without_none(expected_head_sha=commit_sha(expected_head_sha, "expected_head_sha"))
        await self._github.write(
            "PUT", self._github.repository_path(owner, repo, "pulls", number, "update-branch"), asked or None
        )
        return to_content({"success": True})


def _comment_body(comment: LineComment) -> dict[str, Any]:
    if (comment.line is None) == (comment.position is None):
        raise ToolError(f"The comment on {comment.path} needs line or position, and not both")
    path = check_file(comment.path)
    return without_none(path=path, body=comment.body, line=comment.line, position=comment.position)
