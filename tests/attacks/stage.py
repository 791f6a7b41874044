"""A host among hostile servers: servers whose face a test changes, a person who is asked, and what the host says."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trunkline
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.host import Host

__all__ = ["NO", "ROOT", "YES", "Masked", "Person", "allowing", "dropped", "hosting", "tool", "written"]

ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT}:{Path(trunkline.__file__).parents[1]}"
YES = ApprovalAnswer(allow=True)
NO = ApprovalAnswer(allow=False)


def tool(name: str = "look", description: str = "Look something up.", **members: Any) -> dict[str, Any]:
    """Describe a tool as it stands on the wire."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **members}


def written(text: str) -> dict[str, Any]:
    """Make a result of one text."""
    return {"content": [{"type": "text", "text": text}]}


class Masked:
    """A hostile server in a process of its own, and the file that says what it is."""

    def __init__(self, folder: Path, name: str = "evil", **face: Any) -> None:
        """Put on the first face."""
        self.name = name
        self.path = folder / f"{name}.mask.json"
        self.wears(**face)

    def wears(self, **face: Any) -> None:
        """Put on another face; it shows with the next request."""
        waiting = self.path.with_suffix(".next")
        waiting.write_text(json.dumps(face), encoding="utf-8")
        waiting.replace(self.path)

    @property
    def command(self) -> tuple[str, ...]:
        """What starts it."""
        return (sys.executable, "-S", "-m", "tests.attacks.servers.mask", str(self.path))

    def entry(self, *, scope: Any = "user", **settings: Any) -> ServerEntry:
        """Give it as the configuration has it."""
        return ServerEntry(
            name=self.name,
            source=Source(scope),
            command=self.command,
            env={"PYTHONPATH": PATHS},
            settings=ServerSettings(**{"era": "handshake", **settings}),
        )

    @property
    def written_entry(self) -> dict[str, Any]:
        """Give it as a file has it."""
        command, *arguments = self.command
        return {"command": command, "args": arguments, "env": {"PYTHONPATH": PATHS}, "era": "handshake"}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls that reached it."""
        path = self.path.with_suffix(".calls")
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


class Person:
    """Somebody who is asked, and keeps what was shown."""

    def __init__(self, *answers: ApprovalAnswer) -> None:
        """Take what to say, in order; afterwards it is no."""
        self._answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        self.asked.append(question)
        return self._answers.pop(0) if self._answers else NO

    @property
    def rules(self) -> list[str]:
        """Why they were asked, each time."""
        return [question.decision.rule for question in self.asked]


def allowing(*servers: str, tainted: bool = False) -> Policy:
    """Allow all tools of these servers; after words of untrusted servers too if that is said."""
    lines = ["", "tainted = true\n"] if tainted else [""]
    rules = [
        f'[[rule]]\neffect = "allow"\nserver = "{server}"\ntool = "*"\n{line}' for server in servers for line in lines
    ]
    return parse_policy("".join(rules), file="policy.toml")


@asynccontextmanager
async def hosting(servers: Mapping[str, object], folder: Path, **options: Any) -> AsyncIterator[Host]:
    """Open a host over servers; its state outlives it, so that the next one knows what this one saw."""
    given = {"folder": folder / "state", "policy": Policy(()), **options}
    async with Host.open(dict(servers), **given) as host:
        yield host


def dropped(host: Host) -> dict[str, str]:
    """Give what was taken out of the catalog, with the reasons."""
    return {f"{each.kind} {each.server}/{each.name}": each.reason for each in host.catalog.dropped}
