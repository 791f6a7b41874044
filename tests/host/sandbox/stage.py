"""A sandboxed server on a stage: folders inside and outside of its roots, and a way to have it try things."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import run_async
from trunkline import Client
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.sandbox import Capabilities, LaunchPlan, detect_capabilities, prepare_launch

__all__ = ["ABLE", "KINDS", "SECRET", "Stage", "any_kind", "each_kind", "needs"]

ROOT = Path(__file__).parents[3]
SECRET = "nobody may read this"
#: What this machine can do; found out once, when the tests are collected.
ABLE: Capabilities = detect_capabilities()


def needs(kind: str) -> pytest.MarkDecorator:
    """Skip where a kind of sandbox cannot be made, and say why."""
    obstacle = ABLE.obstacle(kind)
    return pytest.mark.skipif(obstacle is not None, reason=f"{kind}: {obstacle}")


KINDS = [pytest.param(kind, marks=needs(kind)) for kind in ("landlock", "bwrap")]
each_kind = pytest.mark.parametrize("kind", KINDS)
#: For what is the same in each kind.
any_kind = pytest.mark.skipif(
    not {"landlock", "bwrap"} & set(ABLE.kinds), reason=f"no sandbox can be made: {'; '.join(ABLE.findings())}"
)


class Stage:
    """The folders of one test: ``inside`` is the server's root, ``outside`` is not."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Make them."""
        self.folder, self.kind = folder, kind
        self.inside, self.outside, self.state = (folder / name for name in ("inside", "outside", "state"))
        for each in (self.inside, self.outside, self.state):
            each.mkdir()
        self.secret = self.outside / "secret"
        self.secret.write_text(SECRET)
        (self.inside / "note").write_text("a note")

    def entry(self, sandbox: Mapping[str, Any], **more: Any) -> ServerEntry:
        """Make the entry of the server that tries things."""
        return ServerEntry(
            name=more.pop("name", "trying"),
            source=more.pop("source", Source("given")),
            command=(sys.executable, "-m", "tests.host.sandbox.server"),
            env={"PYTHONPATH": str(ROOT), **more.pop("env", {})},
            settings=ServerSettings(
                sandbox={"kind": self.kind, **sandbox}, roots=more.pop("roots", (str(self.inside),)), era="handshake"
            ),
            **more,
        )

    def launch(self, sandbox: Mapping[str, Any], *, capabilities: Capabilities = ABLE, **more: Any) -> LaunchPlan:
        """Prepare it."""
        return prepare_launch(self.entry(sandbox, **more), folder=self.state, capabilities=capabilities)

    def tries(
        self, *calls: tuple[str, dict[str, Any]], more: Mapping[str, Any] | None = None, **sandbox: Any
    ) -> list[str]:
        """Start it in its sandbox, and give what it says of each thing it tried."""
        launch = self.launch(sandbox, **(more or {}))

        async def main() -> list[str]:
            client = Client(list(launch.command), env=launch.env, cwd=launch.cwd, revision="legacy", restart=False)
            async with client:
                results = [await client.call_tool(name, arguments) for name, arguments in calls]
            return [result.content[0].text for result in results]  # type: ignore[union-attr]

        return run_async(main())

    def try_one(
        self, tool: str, /, *, more: Mapping[str, Any] | None = None, sandbox: Any = None, **arguments: Any
    ) -> str:
        """Have it try one thing."""
        return self.tries((tool, arguments), more=more, **(sandbox or {}))[0]
