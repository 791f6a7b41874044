"""A stand-in for the REST API of GitHub: one process, one fixture repository, everything in memory.

It knows what the GitHub server of this package asks for, keeps what is written (commits, comments, reviews, merges),
and can be told to refuse. Start it alone with ``python -m examples.code_review.github_double --port 0``: it prints its
address when it is ready. In a test::

    async with GitHubDouble(token="secret").running() as url:
        ...
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from examples.code_review.github_repository import (
    BUTTON_AFTER,
    BUTTON_BEFORE,
    BUTTON_PATH,
    Repository,
    fixture,
    lines_shown,
    patch_of,
    sha_of,
)
from examples.code_review.github_shapes import (
    WHEN,
    shown_commit,
    shown_file,
    shown_issue,
    shown_pull,
    shown_ref,
    shown_repository,
    user,
)

__all__ = ["BUTTON_AFTER", "BUTTON_BEFORE", "BUTTON_PATH", "GitHubDouble", "Repository", "Seen", "main"]

_Answer = web.StreamResponse


@dataclass
class Seen:
    """One request that was made of the double."""

    method: str
    path: str
    query: dict[str, str]
    authorization: str | None
    body: Any = None


def _refused(status: int, message: str, **more: Any) -> web.Response:
    documentation = "https://docs.github.com/rest"
    body = {"message": message, "documentation_url": documentation, "status": str(status), **more}
    return web.json_response(body, status=status)


class GitHubDouble:
    """The double: its repositories, what was asked of it, and what it is to refuse."""

    def __init__(self, *, token: str | None = None, login: str = "reviewer") -> None:
        self.token = token
        self.login = login
        self.repositories = {"acme/project": fixture()}
        #: Every request, oldest first.
        self.seen: list[Seen] = []
        #: Answers to give once instead of the real ones: (method, path pattern, answer).
        self.planned: list[tuple[str, re.Pattern[str], Callable[[], web.Response]]] = []
        #: Where it listens, while it is running.
        self.port = 0
        self._next_id = 1000

    # -- for tests --------------------------------------------------------------------------------------------------

    @property
    def project(self) -> Repository:
        """The fixture repository."""
        return self.repositories["acme/project"]

    def refuse_once(
        self, method: str, path: str, status: int, body: Any = None, headers: dict[str, str] | None = None
    ) -> None:
        """Answer the next request of this method, whose path matches the pattern, with this status."""
        answer = {"message": "refused by plan"} if body is None else body
        self.planned.append(
            (method, re.compile(path), lambda: web.json_response(answer, status=status, headers=headers))
        )

    @asynccontextmanager
    async def running(self, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Listen while the block runs; gives the address."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            self.port = runner.addresses[0][1]
            yield f"http://{host}:{self.port}"
        finally:
            await runner.cleanup()

    def application(self) -> web.Application:
        """The routes, as an aiohttp application."""
        application = web.Application(middlewares=[self._watched], client_max_size=64 * 1024 * 1024)
        at = "/repos/{owner}/{repo}"
        application.add_routes(
            [
                web.get("/search/{kind}", self.search),
                web.post("/user/repos", self.create_repository),
                web.get(at, self.show_repository),
                web.post(at + "/forks", self.fork),
                web.get(at + "/contents", self.contents),
                web.get(at + "/contents/{path:.*}", self.contents),
                web.put(at + "/contents/{path:.+}", self.write_contents),
                web.get(at + "/git/ref/heads/{branch:.+}", self.show_ref),
                # As clients did that are older than the path above.
                web.get(at + "/git/refs/heads/{branch:.+}", self.show_ref),
                web.patch(at + "/git/refs/heads/{branch:.+}", self.move_ref),
                web.post(at + "/git/refs", self.create_ref),
                web.post(at + "/git/trees", self.create_tree),
                web.post(at + "/git/commits", self.create_commit),
                web.get(at + "/commits", self.list_commits),
                web.get(at + "/commits/{sha}/status", self.status),
                web.get(at + "/issues", self.list_issues),
                web.post(at + "/issues", self.create_issue),
                web.get(at + "/issues/{number:\\d+}", self.show_issue),
                web.patch(at + "/issues/{number:\\d+}", self.update_issue),
                web.get(at + "/issues/{number:\\d+}/comments", self.list_comments),
                web.post(at + "/issues/{number:\\d+}/comments", self.comment),
                web.get(at + "/pulls", self.list_pulls),
                web.post(at + "/pulls", self.create_pull),
                web.get(at + "/pulls/{number:\\d+}", self.show_pull),
                web.get(at + "/pulls/{number:\\d+}/files", self.pull_files),
                web.get(at + "/pulls/{number:\\d+}/comments", self.list_review_comments),
                web.post(at + "/pulls/{number:\\d+}/comments", self.review_comment),
                web.get(at + "/pulls/{number:\\d+}/reviews", self.list_reviews),
                web.post(at + "/pulls/{number:\\d+}/reviews", self.review),
                web.put(at + "/pulls/{number:\\d+}/merge", self.merge),
                web.put(at + "/pulls/{number:\\d+}/update-branch", self.update_branch),
            ]
        )
        return application

    @web.middleware
    async def _watched(self, request: web.Request, handler: Any) -> _Answer:
        """Write the request down, check the token, and give a planned answer first."""
        body = await request.json() if request.body_exists and request.can_read_body else None
        sent = request.headers.get("Authorization")
        self.seen.append(Seen(request.method, request.rel_url.raw_path, dict(request.query), sent, body))
        for plan in self.planned:
            method, pattern, answer = plan
            if method == request.method and pattern.search(request.path):
                self.planned.remove(plan)
                return answer()
        if sent is not None and self.token is not None and sent != f"Bearer {self.token}":
            return _refused(401, "Bad credentials")
        if sent is None and self.token is not None and request.method != "GET":
            return _refused(401, "Requires authentication")
        try:
            found: _Answer = await handler(request)
        except web.HTTPException as problem:
            return _refused(problem.status, problem.text or "Not Found")
        return found

    # -- finding and showing ----------------------------------------------------------------------------------------

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _repository(self, request: web.Request) -> Repository:
        repository = self.repositories.get(f"{request.match_info['owner']}/{request.match_info['repo']}".lower())
        signed_in = request.headers.get("Authorization") is not None
        if repository is None or (repository.private and not signed_in):
            raise web.HTTPNotFound(text="Not Found")
        return repository

    def _pull(self, request: web.Request) -> tuple[Repository, int]:
        repository, number = self._repository(request), int(request.match_info["number"])
        if number not in repository.pulls:
            raise web.HTTPNotFound(text="Not Found")
        return repository, number

    def _issue(self, request: web.Request) -> tuple[Repository, int]:
        repository, number = self._repository(request), int(request.match_info["number"])
        if number not in repository.issues:
            raise web.HTTPNotFound(text="Not Found")
        return repository, number

    def _page(self, request: web.Request, items: list[Any]) -> list[Any]:
        size, page = int(request.query.get("per_page", 30)), int(request.query.get("page", 1))
        return items[(page - 1) * size : page * size]

    # -- searching and repositories ---------------------------------------------------------------------------------

    async def search(self, request: web.Request) -> _Answer:
        """Search: words of the query must occur, qualifiers are ignored."""
        words = [word.lower() for word in request.query.get("q", "").split() if ":" not in word]
        found: list[dict[str, Any]] = []
        for repository in self.repositories.values():
            found += [item for text, item in self._searchable(request.match_info["kind"], repository)
                      if all(word in text.lower() for word in words)]  # fmt: skip
        answer = {"total_count": len(found), "incomplete_results": False, "items": self._page(request, found)}
        return web.json_response(answer)

    def _searchable(self, kind: str, repository: Repository) -> list[tuple[str, dict[str, Any]]]:
        shown = shown_repository(repository)
        files = repository.trees[repository.branches[repository.default_branch]]
        match kind:
            case "repositories":
                return [(repository.full_name, shown)]
            case "code":
                keys = ("name", "path", "sha", "url", "git_url", "html_url")
                described = [(path, text, shown_file(repository, path, text)) for path, text in files.items()]
                return [(path + text, {**{k: file[k] for k in keys}, "repository": shown, "score": 1})
                        for path, text, file in described]  # fmt: skip
            case "issues":
                return [(f"{i['title']} {i['body']}", shown_issue(repository, n))
                        for n, i in repository.issues.items()]  # fmt: skip
            case "users":
                return [(repository.owner, user(repository.owner))]
        raise web.HTTPNotFound(text="Not Found")

    async def create_repository(self, request: web.Request) -> _Answer:
        """Create a repository, empty or with a README."""
        asked = await request.json()
        repository = Repository(self.login, asked["name"], bool(asked.get("private")))
        key = repository.full_name.lower()
        if key in self.repositories:
            return _refused(
                422, "Repository creation failed.", errors=[{"message": "name already exists on this account"}]
            )
        repository.commit(
            "main", "Initial commit", {"README.md": f"# {asked['name']}\n"} if asked.get("auto_init") else {}
        )
        self.repositories[key] = repository
        return web.json_response(shown_repository(repository), status=201)

    async def show_repository(self, request: web.Request) -> _Answer:
        """Show a repository."""
        return web.json_response(shown_repository(self._repository(request)))

    async def fork(self, request: web.Request) -> _Answer:
        """Copy a repository to the user, or to an organization."""
        origin = self._repository(request)
        asked = await request.json() if request.body_exists else {}
        owner = asked.get("organization") or request.query.get("organization") or self.login
        copy = Repository(
            owner, origin.name, branches=dict(origin.branches), trees=origin.trees, commits=origin.commits
        )
        self.repositories[copy.full_name.lower()] = copy
        shown, parent = shown_repository(copy), shown_repository(origin)
        return web.json_response({**shown, "parent": parent, "source": parent}, status=202)

    # -- files, branches, commits -----------------------------------------------------------------------------------

    async def contents(self, request: web.Request) -> _Answer:
        """Show a file with its text, or list a folder."""
        repository = self._repository(request)
        branch = request.query.get("ref", repository.default_branch)
        sha = repository.branches.get(branch, branch)
        if sha not in repository.trees:
            return _refused(404, f"No commit found for the ref {branch}")
        files, path = repository.trees[sha], request.match_info.get("path", "").strip("/")
        if path in files:
            shown = shown_file(repository, path, files[path])
            raw = files[path].encode("utf-8", "surrogateescape")
            return web.json_response({**shown, "content": base64.encodebytes(raw).decode(), "encoding": "base64"})
        return self._folder(repository, path, files)

    def _folder(self, repository: Repository, path: str, files: dict[str, str]) -> _Answer:
        prefix = path + "/" if path else ""
        inside = {name[len(prefix) :].split("/")[0]: name for name in sorted(files) if name.startswith(prefix)}
        if not inside:
            return _refused(404, "Not Found")
        listed = []
        for short, name in inside.items():
            whole = prefix + short
            item = shown_file(repository, whole, files[name] if name == whole else "")
            if name != whole:
                item.update(type="dir", download_url=None)
            listed.append(item)
        return web.json_response(listed)

    async def write_contents(self, request: web.Request) -> _Answer:
        """Create or replace a file with a commit; replacing needs the id of what is replaced."""
        repository, asked = self._repository(request), await request.json()
        path, branch = request.match_info["path"], asked.get("branch", repository.default_branch)
        if branch not in repository.branches:
            return _refused(404, f"Branch {branch} not found")
        files = dict(repository.trees[repository.branches[branch]])
        if path in files and asked.get("sha") is None:
            return _refused(422, 'Invalid request.\n\n"sha" wasn\'t supplied.')
        if path in files and asked["sha"] != sha_of(files[path]):
            return _refused(409, f"{path} does not match {asked['sha']}")
        created = path not in files
        files[path] = base64.b64decode(asked["content"]).decode("utf-8", "surrogateescape")
        sha = repository.commit(branch, asked["message"], files)
        answer = {
            "content": shown_file(repository, path, files[path]),
            "commit": shown_commit(repository, sha),
        }
        return web.json_response(answer, status=201 if created else 200)

    async def show_ref(self, request: web.Request) -> _Answer:
        """Show where a branch points."""
        repository, branch = self._repository(request), request.match_info["branch"]
        if branch not in repository.branches:
            return _refused(404, "Not Found")
        return web.json_response(shown_ref(repository, branch))

    async def create_ref(self, request: web.Request) -> _Answer:
        """Create a branch."""
        repository, asked = self._repository(request), await request.json()
        branch = asked["ref"].removeprefix("refs/heads/")
        if branch in repository.branches:
            return _refused(422, "Reference already exists")
        if asked["sha"] not in repository.commits:
            return _refused(422, "Object does not exist")
        repository.branches[branch] = asked["sha"]
        return web.json_response(shown_ref(repository, branch), status=201)

    async def move_ref(self, request: web.Request) -> _Answer:
        """Point a branch at another commit: only forward, unless forced."""
        repository, asked = self._repository(request), await request.json()
        branch = request.match_info["branch"]
        if branch not in repository.branches or asked["sha"] not in repository.commits:
            return _refused(422, "Reference does not exist")
        forward = repository.branches[branch] in repository.commits[asked["sha"]]["parents"]
        if not forward and not asked.get("force"):
            return _refused(422, "Update is not a fast forward")
        repository.branches[branch] = asked["sha"]
        return web.json_response(shown_ref(repository, branch))

    async def create_tree(self, request: web.Request) -> _Answer:
        """Create a tree from another one and some files."""
        repository, asked = self._repository(request), await request.json()
        files = dict(repository.trees.get(asked.get("base_tree", ""), {}))
        files.update({entry["path"]: entry["content"] for entry in asked["tree"]})
        sha = repository.tree(files)
        api = f"https://api.github.com/repos/{repository.full_name}/git"
        entries = [{"path": path, "mode": "100644", "type": "blob", "size": len(text), "sha": sha_of(text),
                    "url": f"{api}/blobs/{sha_of(text)}"} for path, text in files.items()]  # fmt: skip
        return web.json_response(
            {"sha": sha, "url": f"{api}/trees/{sha}", "tree": entries, "truncated": False}, status=201
        )

    async def create_commit(self, request: web.Request) -> _Answer:
        """Create a commit that no branch points to yet."""
        repository, asked = self._repository(request), await request.json()
        sha = repository.add_commit(asked["message"], asked["tree"], asked["parents"])
        return web.json_response(shown_commit(repository, sha), status=201)

    async def list_commits(self, request: web.Request) -> _Answer:
        """List the commits of a branch, newest first."""
        repository = self._repository(request)
        start = request.query.get("sha", repository.default_branch)
        line = [repository.branches.get(start, start)]
        while line[-1] in repository.commits and repository.commits[line[-1]]["parents"]:
            line.append(repository.commits[line[-1]]["parents"][0])
        shown = [shown_commit(repository, sha) for sha in line if sha in repository.commits]
        listed = [{"sha": one["sha"], "node_id": one["node_id"], "commit": one, "url": one["url"]} for one in shown]
        return web.json_response(self._page(request, listed))

    async def status(self, request: web.Request) -> _Answer:
        """Show the checks of a commit: one, passed."""
        sha = request.match_info["sha"]
        check = {"url": f"https://api.github.com/statuses/{sha}", "state": "success", "description": "All tests passed",
                 "target_url": None, "context": "ci/tests", "created_at": WHEN, "updated_at": WHEN}  # fmt: skip
        return web.json_response({"state": "success", "statuses": [check], "sha": sha, "total_count": 1})

    # -- issues -----------------------------------------------------------------------------------------------------

    async def list_issues(self, request: web.Request) -> _Answer:
        """List issues by state and labels."""
        repository, state = self._repository(request), request.query.get("state", "open")
        labels = {name for name in request.query.get("labels", "").split(",") if name}
        chosen = [number for number, issue in sorted(repository.issues.items(), reverse=True)
                  if state in ("all", issue["state"]) and labels <= set(issue["labels"])]  # fmt: skip
        return web.json_response(self._page(request, [shown_issue(repository, number) for number in chosen]))

    async def create_issue(self, request: web.Request) -> _Answer:
        """Open an issue."""
        repository, asked = self._repository(request), await request.json()
        number = max(repository.issues, default=0) + 1
        repository.issues[number] = {"body": None, "labels": [], **asked, "number": number, "state": "open"}
        return web.json_response(shown_issue(repository, number), status=201)

    async def show_issue(self, request: web.Request) -> _Answer:
        """Show an issue."""
        return web.json_response(shown_issue(*self._issue(request)))

    async def update_issue(self, request: web.Request) -> _Answer:
        """Change an issue."""
        repository, number = self._issue(request)
        repository.issues[number].update(await request.json())
        return web.json_response(shown_issue(repository, number))

    async def list_comments(self, request: web.Request) -> _Answer:
        """List plain comments."""
        repository, number = self._issue(request)
        return web.json_response(self._page(request, repository.comments.get(number, [])))

    async def comment(self, request: web.Request) -> _Answer:
        """Add a plain comment to an issue or a pull request."""
        repository, number = self._issue(request)
        one = self._remark((await request.json())["body"], f"{repository.full_name}/issues/{number}")
        repository.comments.setdefault(number, []).append(one)
        return web.json_response(one, status=201)

    def _remark(self, body: str, place: str) -> dict[str, Any]:
        identity = self._id()
        return {
            "url": f"https://api.github.com/repos/{place}/comments/{identity}",
            "html_url": f"https://github.com/{place}#comment-{identity}",
            "id": identity,
            "node_id": f"IC_{identity}",
            "user": user(self.login),
            "created_at": WHEN,
            "updated_at": WHEN,
            "author_association": "MEMBER",
            "body": body,
        }

    # -- pull requests ----------------------------------------------------------------------------------------------

    async def list_pulls(self, request: web.Request) -> _Answer:
        """List pull requests by state and base."""
        repository, state = self._repository(request), request.query.get("state", "open")
        base = request.query.get("base")
        chosen = [number for number, pull in sorted(repository.pulls.items(), reverse=True)
                  if state in ("all", pull["state"]) and base in (None, pull["base"])]  # fmt: skip
        return web.json_response(self._page(request, [shown_pull(repository, number) for number in chosen]))

    async def create_pull(self, request: web.Request) -> _Answer:
        """Open a pull request between two branches."""
        repository, asked = self._repository(request), await request.json()
        if missing := [side for side in ("head", "base") if asked[side] not in repository.branches]:
            errors = [{"resource": "PullRequest", "field": missing[0], "code": "invalid"}]
            return _refused(422, "Validation Failed", errors=errors)
        number = max(repository.issues, default=0) + 1
        pull = repository.open_pull(number, asked["title"], asked.get("body"), head=asked["head"], base=asked["base"])
        pull["draft"] = bool(asked.get("draft"))
        return web.json_response(shown_pull(repository, number), status=201)

    async def show_pull(self, request: web.Request) -> _Answer:
        """Show a pull request."""
        return web.json_response(shown_pull(*self._pull(request)))

    async def pull_files(self, request: web.Request) -> _Answer:
        """List the files a pull request changes, with patches."""
        repository, number = self._pull(request)
        listed = []
        for path, before, after in repository.changed(number):
            patch, file = patch_of(before, after), shown_file(repository, path, after or "")
            more = sum(line.startswith("+") for line in patch.splitlines())
            less = sum(line.startswith("-") for line in patch.splitlines())
            status = "added" if before is None else "removed" if after is None else "modified"
            listed.append({
                "sha": file["sha"], "filename": path, "status": status, "additions": more, "deletions": less,
                "changes": more + less, "blob_url": file["html_url"], "raw_url": file["download_url"],
                "contents_url": file["url"], "patch": patch,
            })  # fmt: skip
        return web.json_response(self._page(request, listed))

    async def list_review_comments(self, request: web.Request) -> _Answer:
        """List the remarks on lines."""
        repository, number = self._pull(request)
        return web.json_response(self._page(request, repository.review_comments.get(number, [])))

    async def review_comment(self, request: web.Request) -> _Answer:
        """Remark on a line that the pull request shows, at its newest commit."""
        repository, number = self._pull(request)
        problem, remark = self._on_line(repository, number, await request.json())
        if remark is None:
            return _refused(
                422, "Validation Failed", errors=[{"field": "pull_request_review_thread", "message": problem}]
            )
        repository.review_comments.setdefault(number, []).append(remark)
        return web.json_response(remark, status=201)

    def _on_line(self, repository: Repository, number: int, asked: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        head = repository.branches[repository.pulls[number]["head"]]
        patches = {path: patch_of(before, after) for path, before, after in repository.changed(number)}
        patch = patches.get(asked["path"], "")
        if asked["path"] not in patches:
            return "path is not part of the diff", None
        if asked.get("commit_id") not in repository.commits:
            return "commit_id is not part of the pull request", None
        if "line" in asked and asked["line"] not in lines_shown(patch):
            return "line must be part of the diff", None
        remark = self._remark(asked["body"], f"{repository.full_name}/pulls/{number}")
        here = remark["url"]
        return "", {
            **remark,
            "pull_request_review_id": None,
            "diff_hunk": patch.splitlines()[0] if patch else "",
            "path": asked["path"],
            "line": asked.get("line"),
            "position": None,
            "original_position": None,
            "commit_id": asked["commit_id"],
            "original_commit_id": head,
            "pull_request_url": here,
            "_links": {"self": {"href": here}, "html": {"href": here}, "pull_request": {"href": here}},
        }

    async def list_reviews(self, request: web.Request) -> _Answer:
        """List the reviews."""
        repository, number = self._pull(request)
        return web.json_response(self._page(request, repository.reviews.get(number, [])))

    async def review(self, request: web.Request) -> _Answer:
        """Review a pull request, with remarks on lines."""
        repository, number = self._pull(request)
        asked = await request.json()
        head = repository.branches[repository.pulls[number]["head"]]
        remarks = [self._on_line(repository, number, {"commit_id": head, **one}) for one in asked.get("comments", [])]
        if wrong := [problem for problem, remark in remarks if remark is None]:
            return _refused(422, "Unprocessable Entity", errors=wrong)
        repository.review_comments.setdefault(number, []).extend(remark for _, remark in remarks if remark is not None)
        states = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
        one = {
            **self._remark(asked["body"], f"{repository.full_name}/pulls/{number}"),
            "state": states[asked["event"]],
            "pull_request_url": f"https://api.github.com/repos/{repository.full_name}/pulls/{number}",
            "commit_id": asked.get("commit_id", head),
            "submitted_at": WHEN,
        }
        repository.reviews.setdefault(number, []).append(one)
        return web.json_response(one)

    async def merge(self, request: web.Request) -> _Answer:
        """Merge a pull request, if it is open and its head is the one that was meant."""
        repository, number = self._pull(request)
        pull, asked = repository.pulls[number], await request.json() if request.body_exists else {}
        if pull["state"] != "open":
            return _refused(405, "Pull Request is not mergeable")
        if asked.get("sha") not in (None, repository.branches[pull["head"]]):
            return _refused(409, "Head branch was modified. Review and try the merge again.")
        files = repository.trees[repository.branches[pull["head"]]]
        sha = repository.commit(pull["base"], asked.get("commit_title") or f"Merge pull request #{number}", files)
        pull.update(state="closed", merged=True, merge_commit_sha=sha)
        repository.issues[number]["state"] = "closed"
        return web.json_response({"sha": sha, "merged": True, "message": "Pull Request successfully merged"})

    async def update_branch(self, request: web.Request) -> _Answer:
        """Merge the base into the head."""
        repository, number = self._pull(request)
        asked = await request.json() if request.body_exists else {}
        pull = repository.pulls[number]
        if asked.get("expected_head_sha") not in (None, repository.branches[pull["head"]]):
            return _refused(422, "expected head sha didn't match current head ref.")
        merged = {
            **repository.trees[repository.branches[pull["base"]]],
            **repository.trees[repository.branches[pull["head"]]],
        }
        repository.commit(pull["head"], "Merge the base", merged)
        page = f"https://github.com/{repository.full_name}/pull/{number}"
        return web.json_response({"message": "Updating pull request branch.", "url": page}, status=202)


async def _serve(double: GitHubDouble, port: int) -> None:
    async with double.running(port=port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted; print the address first."""
    parser = argparse.ArgumentParser(
        description="A stand-in for the REST API of GitHub, with the repository acme/project."
    )
    parser.add_argument("--port", type=int, default=0, help="where to listen; any free port unless given")
    parser.add_argument("--token", help="the only token that may write; default: any")
    asked = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(GitHubDouble(token=asked.token), asked.port))


if __name__ == "__main__":
    main()
