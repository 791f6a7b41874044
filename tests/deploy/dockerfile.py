"""Reads a Dockerfile into its stages and instructions; enough for ours, and it raises on what it does not know."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

__all__ = ["Instruction", "instructions", "words"]

KNOWN = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD", "ARG",
}  # fmt: skip


class Instruction(NamedTuple):
    """One instruction, and the number of its stage."""

    stage: int
    name: str
    value: str


def instructions(file: Path) -> list[Instruction]:
    """Return the instructions of a Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    found: list[Instruction] = []
    stage = -1
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, value = line.partition(" ")
        assert name in KNOWN, f"{name} is not an instruction"
        stage += name == "FROM"
        assert stage >= 0, f"{name} before FROM"
        found.append(Instruction(stage, name, value.strip()))
    return found


def words(value: str) -> list[str]:
    """Return the words of a command, in either form."""
    if value.startswith("["):
        loaded = json.loads(value)
        assert all(isinstance(each, str) for each in loaded)
        return list(loaded)
    return shlex.split(value)
