"""Folders of skills, made for a test."""

from __future__ import annotations

from pathlib import Path

from trunkline.types import Skill, SkillResource

__all__ = ["add_skill", "digests", "listed"]


def add_skill(folder: Path, path: str, *, description: str = "What it does", **files: str | bytes) -> Path:
    """Write a skill; the names of further files have ``__`` for each slash and ``_`` for the dot of their ending."""
    home = folder / path
    home.mkdir(parents=True, exist_ok=True)
    (home / "SKILL.md").write_text(f"---\nname: {home.name}\ndescription: {description}\n---\n\nDo it.\n")
    for name, content in files.items():
        *folders, last = name.split("__")
        file = home.joinpath(*folders, ".".join(last.rsplit("_", 1)))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return home


def listed(skill: Skill) -> list[SkillResource]:
    """The files of a skill that is not generated."""
    assert skill.resources != "dynamic"
    return skill.resources


def digests(skill: Skill) -> dict[str, str]:
    """The digests of a skill's files, by URI."""
    return {each.uri: each.digest for each in listed(skill)}
