"""What the stand-in for GitHub answers with: its repository in the JSON that the REST API has for it."""

from __future__ import annotations

from typing import Any

from examples.code_review.github_repository import Repository, sha_of

__all__ = [
    "WHEN",
    "shown_commit",
    "shown_file",
    "shown_issue",
    "shown_pull",
    "shown_ref",
    "shown_repository",
    "user",
]

#: The time of everything.
WHEN = "2026-01-05T09:00:00Z"


def user(login: str) -> dict[str, Any]:
    """Show a user."""
    return {
        "login": login,
        "id": 1 + sum(login.encode()),
        "node_id": f"U_{login}",
        "avatar_url": f"https://avatars.example/{login}",
        "url": f"https://api.github.com/users/{login}",
        "html_url": f"https://github.com/{login}",
        "type": "Organization" if login == "acme" else "User",
        "site_admin": False,
    }


def shown_repository(repository: Repository) -> dict[str, Any]:
    """Show a repository."""
    full = repository.full_name
    return {
        "id": 1 + sum(full.encode()),
        "node_id": f"R_{full}",
        "name": repository.name,
        "full_name": full,
        "private": repository.private,
        "owner": user(repository.owner),
        "html_url": f"https://github.com/{full}",
        "description": None,
        "fork": repository.owner != "acme",
        "url": f"https://api.github.com/repos/{full}",
        "created_at": WHEN,
        "updated_at": WHEN,
        "pushed_at": WHEN,
        "git_url": f"git://github.com/{full}.git",
        "ssh_url": f"git@github.com:{full}.git",
        "clone_url": f"https://github.com/{full}.git",
        "default_branch": repository.default_branch,
        "stargazers_count": 3,
    }


def shown_issue(repository: Repository, number: int) -> dict[str, Any]:
    """Show an issue, or a pull request as one."""
    kept = repository.issues[number]
    api = f"https://api.github.com/repos/{repository.full_name}/issues/{number}"
    shown = {
        "url": api,
        "id": 5000 + number,
        "node_id": f"I_{number}",
        "html_url": f"https://github.com/{repository.full_name}/issues/{number}",
        "number": number,
        "user": user("author"),
        "locked": False,
        "comments": len(repository.comments.get(number, [])),
        "created_at": WHEN,
        "updated_at": WHEN,
        "milestone": kept.get("milestone"),
        "assignees": [user(login) for login in kept.get("assignees", [])],
        **{name: kept[name] for name in ("title", "body", "state")},
        "labels": [_label(name) for name in kept.get("labels", [])],
    }
    return {**shown, "pull_request": {"url": api}} if number in repository.pulls else shown


def _label(name: str) -> dict[str, Any]:
    return {"id": 1, "node_id": "L_1", "url": "https://api.github.com/labels", "name": name, "color": "ededed",
            "default": False, "description": None}  # fmt: skip


def _side(repository: Repository, branch: str) -> dict[str, Any]:
    return {
        "label": f"{repository.owner}:{branch}",
        "ref": branch,
        "sha": repository.branches[branch],
        "user": user(repository.owner),
        "repo": shown_repository(repository),
    }


def shown_pull(repository: Repository, number: int) -> dict[str, Any]:
    """Show a pull request."""
    kept = repository.pulls[number]
    api = f"https://api.github.com/repos/{repository.full_name}"
    page = f"https://github.com/{repository.full_name}/pull/{number}"
    done = WHEN if kept["state"] == "closed" else None
    return {
        "url": f"{api}/pulls/{number}",
        "id": 9000 + number,
        "node_id": f"PR_{number}",
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": f"{api}/issues/{number}",
        "number": number,
        "state": kept["state"],
        "locked": False,
        "title": kept["title"],
        "user": user("author"),
        "body": kept["body"],
        "created_at": WHEN,
        "updated_at": WHEN,
        "closed_at": done,
        "merged_at": WHEN if kept["merged"] else None,
        "merge_commit_sha": kept["merge_commit_sha"],
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [user("reviewer")],
        "labels": [],
        "draft": kept["draft"],
        "head": _side(repository, kept["head"]),
        "base": _side(repository, kept["base"]),
        "merged": kept["merged"],
        "mergeable": True,
    }


def shown_file(repository: Repository, path: str, text: str) -> dict[str, Any]:
    """Show a file without its text."""
    api = f"https://api.github.com/repos/{repository.full_name}/contents/{path}"
    page = f"https://github.com/{repository.full_name}/blob/main/{path}"
    git = f"https://api.github.com/repos/{repository.full_name}/git/blobs/{sha_of(text)}"
    return {
        "name": path.rsplit("/", 1)[-1],
        "path": path,
        "sha": sha_of(text),
        "size": len(text.encode("utf-8", "surrogateescape")),
        "url": api,
        "html_url": page,
        "git_url": git,
        "download_url": f"https://raw.example/{repository.full_name}/{path}",
        "type": "file",
        "_links": {"self": api, "git": git, "html": page},
    }


def shown_commit(repository: Repository, sha: str) -> dict[str, Any]:
    """Show a commit."""
    kept = repository.commits[sha]
    api, page = (
        f"https://api.github.com/repos/{repository.full_name}/git",
        f"https://github.com/{repository.full_name}",
    )
    person = {"name": "Author", "email": "author@example.com", "date": WHEN}
    return {
        "sha": sha,
        "node_id": f"C_{sha[:8]}",
        "url": f"{api}/commits/{sha}",
        "html_url": f"{page}/commit/{sha}",
        "author": person,
        "committer": person,
        "message": kept["message"],
        "tree": {"sha": kept["tree"], "url": f"{api}/trees/{kept['tree']}"},
        "parents": [
            {"sha": sha, "url": f"{api}/commits/{sha}", "html_url": f"{page}/commit/{sha}"} for sha in kept["parents"]
        ],
        "verification": {"verified": False},
    }


def shown_ref(repository: Repository, branch: str) -> dict[str, Any]:
    """Show where a branch points."""
    api, sha = f"https://api.github.com/repos/{repository.full_name}/git", repository.branches[branch]
    return {
        "ref": f"refs/heads/{branch}",
        "node_id": f"REF_{branch}",
        "url": f"{api}/refs/heads/{branch}",
        "object": {"sha": sha, "type": "commit", "url": f"{api}/commits/{sha}"},
    }
