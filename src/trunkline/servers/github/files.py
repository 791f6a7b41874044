"""The tools for files in a repository: read one, write one, push several in one commit."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from typing import Annotated, Any

from msgspec import Meta, Struct

from trunkline import ToolError
from trunkline.servers.github.answers import answer
from trunkline.servers.github.arguments import DESTROYS, READS, Branch, Hints, Owner, Repo, Sha, commit_sha, given
from trunkline.servers.github.calls import GitHub, check_branch, check_file, picked
from trunkline.servers.github.shapes import COMMIT_OF_FILE, ENTRY, FILE, REFERENCE, shaped
from trunkline.servers.rest import ApiError
from trunkline.types import TextContent

__all__ = ["HINTS", "MOST_BYTES", "MOST_FILES", "Files"]

HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_or_update_file", DESTROYS),
    ("get_file_contents", READS),
    ("push_files", DESTROYS),
)

#: GitHub returns the contents of files up to this size; larger ones are neither read nor written.
MOST_BYTES = 1024 * 1024
MOST_FILES = 200
_MOST_BYTES_PUSHED = 8 * MOST_BYTES

Message = Annotated[str, Meta(min_length=1, max_length=65_536, description="The message of the commit")]
Path = Annotated[str, Meta(description="The path of the file, from the top of the repository")]
OldSha = Annotated[Sha, Meta(description="The id (sha) of the file being replaced; looked up if not given")]


class FileToPush(Struct):
    """A file to be pushed."""

    path: Annotated[str, Meta(description="The path of the file, from the top of the repository")]
    content: Annotated[str, Meta(description="Its whole text")]


class Files:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    async def create_or_update_file(
        self, owner: Owner, repo: Repo, path: Path, content: str, message: Message, branch: Branch, sha: OldSha = None
    ) -> list[TextContent]:
        """Create or replace one file in a repository, with a commit of its own."""
        github = self._github
        github.need_token()
        check_file(path)
        _check_size(path, content)
        place = github.contents(owner, repo, path)
        name = check_branch(branch)
        old = commit_sha(sha, "sha") or await self._sha_of(place, path, name)
        text = b64encode(content.encode()).decode()
        body = given(message=message, content=text, branch=name, sha=old)
        return answer(await github.write("PUT", place, body), COMMIT_OF_FILE)

    async def _sha_of(self, place: str, path: str, branch: str) -> str | None:
        """Return the id of the existing file; None if there is none."""
        there = await self._github.find(place, {"ref": branch})
        if isinstance(there, list):
            raise ToolError(f"{path!r} is a folder in the branch {branch}: give the path of a file")
        return None if there is None else picked(there, "sha")

    async def get_file_contents(
        self,
        owner: Owner,
        repo: Repo,
        path: Annotated[str, Meta(description="The path of a file or folder; empty for the top")],
        branch: Annotated[str | None, Meta(max_length=255, description="A branch, else the default one")] = None,
    ) -> list[TextContent]:
        """Read a file, or list a folder, of a repository."""
        ref = None if branch is None else check_branch(branch)
        found = await self._github.read(self._github.contents(owner, repo, path), {"ref": ref})
        if isinstance(found, list):
            return answer(found, ENTRY)
        if not isinstance(found, dict):
            raise ApiError("GitHub answered with something unexpected")
        # A file is returned completely or not at all: a truncated one could be written back.
        text = json.dumps(_decoded(shaped(found, FILE), path), indent=2, ensure_ascii=False)
        return [TextContent(text=text)]

    async def push_files(
        self,
        owner: Owner,
        repo: Repo,
        branch: Branch,
        files: Annotated[list[FileToPush], Meta(min_length=1, max_length=MOST_FILES, description="What to write")],
        message: Message,
    ) -> list[TextContent]:
        """Write several files to a branch in one commit: all of them or none."""
        github = self._github
        github.need_token()
        entries = _entries(files)
        place = github.branch(owner, repo, branch)
        tip = await github.tip(owner, repo, branch)
        body: dict[str, Any] = {"tree": entries, "base_tree": tip}
        tree = await github.write("POST", github.at(owner, repo, "git", "trees"), body)
        body = {"message": message, "tree": picked(tree, "sha"), "parents": [tip]}
        commit = await github.write("POST", github.at(owner, repo, "git", "commits"), body)
        # So far the branch is unchanged. It is updated atomically, and only if it has not moved meanwhile.
        try:
            moved = await github.write("PATCH", place, {"sha": picked(commit, "sha"), "force": False})
        except ApiError as error:
            if error.status not in (409, 422):
                raise
            raise ToolError(f"Nothing was pushed: {error}. The branch may have moved meanwhile; try again") from error
        return answer(moved, REFERENCE)


def _check_size(path: str, content: str) -> int:
    try:
        size = len(content.encode())
    except UnicodeEncodeError:
        raise ToolError(f"The text of {path} is not valid Unicode") from None
    if size > MOST_BYTES:
        raise ToolError(f"The text of {path} has {size} bytes; a file may have up to {MOST_BYTES}")
    return size


def _entries(files: list[FileToPush]) -> list[dict[str, str]]:
    """Return the entries of the new tree after checking all files."""
    paths = [check_file(file.path) for file in files]
    if len(set(paths)) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ToolError(f"{twice} stands twice in files: give each path once")
    total = sum(_check_size(path, file.content) for path, file in zip(paths, files, strict=True))
    if total > _MOST_BYTES_PUSHED:
        raise ToolError(f"The files have {total} bytes together; one push may have up to {_MOST_BYTES_PUSHED}")
    return [
        {"path": path, "mode": "100644", "type": "blob", "content": file.content}
        for path, file in zip(paths, files, strict=True)
    ]


def _decoded(file: Any, path: str) -> Any:
    """Return a file with its content decoded; binary content stays base64, as ``encoding`` says."""
    size = file.get("size", 0)
    if file.get("type") == "file" and size > MOST_BYTES:
        raise ToolError(f"{path} has {size} bytes; files up to {MOST_BYTES} bytes can be read")
    if file.get("encoding") != "base64":
        return file
    try:
        return {**file, "content": b64decode(file["content"]).decode(), "encoding": "utf-8"}
    except (UnicodeDecodeError, binascii.Error, KeyError):
        return file
