"""The repository that the stand-in for GitHub keeps: branches, files, issues and pull requests, in memory."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BUTTON_AFTER", "BUTTON_BEFORE", "BUTTON_PATH", "Repository", "fixture", "lines_shown", "patch_of", "sha_of"]

BUTTON_PATH = "src/components/Button.tsx"

#: The file of the fixture as it is on ``main``.
BUTTON_BEFORE = """\
import React from "react";

export type ButtonKind = "primary" | "secondary" | "danger";

export interface ButtonProps {
  kind?: ButtonKind;
  label: string;
  disabled?: boolean;
  onPress: () => void;
}

const COLOURS: Record<ButtonKind, string> = {
  primary: "#1a56db",
  secondary: "#6b7280",
  danger: "#c81e1e",
};

function colourOf(kind: ButtonKind, disabled: boolean): string {
  if (disabled) {
    return "#d1d5db";
  }
  return COLOURS[kind];
}

export function Button({
  kind = "primary",
  label,
  disabled = false,
  onPress,
}: ButtonProps): React.ReactElement {
  const style = {
    backgroundColor: colourOf(kind, disabled),
    border: "none",
    borderRadius: 4,
    color: "white",
    padding: "8px 16px",
  };

  return (
    <button type="button" disabled={disabled}
      onClick={onPress} style={style}
    >{label}</button>
  );
}
"""

#: The same file as pull request 42 would have it; line 42 is the one worth a remark.
BUTTON_AFTER = BUTTON_BEFORE.replace('padding: "8px 16px"', 'padding: "6px 12px"').replace(
    ">{label}</button>", "><span dangerouslySetInnerHTML={{ __html: label }} /></button>"
)


@dataclass
class Repository:
    """A repository: branches, the files of every commit, issues, pull requests."""

    owner: str
    name: str
    private: bool = False
    default_branch: str = "main"
    branches: dict[str, str] = field(default_factory=dict)
    #: The files of a commit or a tree, by its id.
    trees: dict[str, dict[str, str]] = field(default_factory=dict)
    commits: dict[str, dict[str, Any]] = field(default_factory=dict)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    #: Plain comments, by the number of the issue or pull request.
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    review_comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    reviews: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The owner and the name."""
        return f"{self.owner}/{self.name}"

    def commit(self, branch: str, message: str, files: dict[str, str]) -> str:
        """Put a commit with exactly these files on a branch; give its id."""
        parents = [self.branches[branch]] if branch in self.branches else []
        tree = self.tree(files)
        sha = self.add_commit(message, tree, parents)
        self.branches[branch] = sha
        return sha

    def tree(self, files: dict[str, str]) -> str:
        """Store a tree of files and return its id."""
        sha = sha_of("tree", json.dumps(files, sort_keys=True))
        self.trees[sha] = dict(files)
        return sha

    def add_commit(self, message: str, tree: str, parents: list[str]) -> str:
        """Store a commit that no branch points to yet, and return its id."""
        sha = sha_of("commit", message, tree, *parents)
        self.commits[sha] = {"message": message, "tree": tree, "parents": parents}
        self.trees[sha] = self.trees[tree]
        return sha

    def open_pull(self, number: int, title: str, body: str | None, *, head: str, base: str) -> dict[str, Any]:
        """Open a pull request with this number."""
        pull = {"number": number, "title": title, "body": body, "state": "open", "head": head, "base": base}
        self.pulls[number] = {**pull, "draft": False, "merged": False, "merge_commit_sha": None}
        self.issues[number] = {"number": number, "title": title, "body": body, "state": "open", "labels": []}
        return self.pulls[number]

    def changed(self, number: int) -> list[tuple[str, str | None, str | None]]:
        """List what a pull request changes: path, text before, text after."""
        pull = self.pulls[number]
        before, after = self.trees[self.branches[pull["base"]]], self.trees[self.branches[pull["head"]]]
        paths = sorted({*before, *after})
        return [(path, before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)]


def fixture() -> Repository:
    """Create the repository acme/project, with pull request 42 open."""
    repository = Repository("acme", "project")
    files = {
        "README.md": "# Project\n\nButtons, mostly.\n",
        BUTTON_PATH: BUTTON_BEFORE,
        "src/index.ts": 'export { Button } from "./components/Button";\n',
    }
    repository.commit("main", "Add the button", files)
    repository.branches["button-markup"] = repository.branches["main"]
    repository.commit("button-markup", "Allow markup in labels", {**files, BUTTON_PATH: BUTTON_AFTER})
    repository.issues[7] = {
        "number": 7,
        "title": "Labels should allow bold text",
        "body": "Some of our labels need **bold** words.",
        "state": "open",
        "labels": ["enhancement"],
    }
    repository.open_pull(42, "Allow markup in button labels", "Closes #7.", head="button-markup", base="main")
    return repository


def sha_of(*parts: str) -> str:
    """Return the id of an object."""
    return hashlib.sha1("\0".join(parts).encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


def patch_of(before: str | None, after: str | None) -> str:
    """Write the change of a file down as a unified diff, without the head of one."""
    lines = difflib.unified_diff((before or "").splitlines(), (after or "").splitlines(), lineterm="", n=3)
    return "\n".join(list(lines)[2:])


def lines_shown(patch: str) -> set[int]:
    """Return the lines of the new file that a patch contains: only those can be commented on."""
    shown: set[int] = set()
    line = 0
    for text in patch.splitlines():
        if start := re.match(r"@@ -\S+ \+(\d+)", text):
            line = int(start.group(1))
        elif not text.startswith("-"):
            shown.add(line)
            line += 1
    return shown
