"""Runs the real git: with an argument list, its own environment, a deadline, and a limit on its output.

This module knows nothing of repositories. A process that takes too long gets SIGTERM first, so that git removes its
lock files, and then SIGKILL together with everything it started.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence

from trunkline.errors import ToolError
from trunkline.servers.git.child import Child, Ran
from trunkline.servers.wording import one_line

__all__ = ["Program"]

#: Most git processes that run at once; others wait.
_SLOTS = 8
#: The oldest git that can ignore the user's configuration and take settings from the environment.
_OLDEST = (2, 32)


class Program:
    """The git program of this machine, with its time and output limits."""

    def __init__(self, path: str, *, seconds: float, most: int) -> None:
        """Run the program at ``path`` for at most ``seconds``, reading at most ``most`` bytes of its output."""
        self.path = path
        self.seconds = seconds
        self.most = most
        self._slots = asyncio.Semaphore(_SLOTS)
        self._known = False

    async def check(self) -> None:
        """Check once that this git supports the settings that protect from a repository's configuration.

        Raises:
            ToolError: it is too old.
        """
        if self._known:
            return
        said = await self.run(["version"], cwd=os.sep, env={"LC_ALL": "C"})
        found = re.search(rb"(\d+)\.(\d+)", said.out)
        if found is None or (int(found[1]), int(found[2])) < _OLDEST:
            wanted = ".".join(str(part) for part in _OLDEST)
            raise ToolError(f"{self.path} is older than git {wanted}, which this server needs: install a newer one.")
        self._known = True

    async def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes = b"",
        most: int | None = None,
    ) -> Ran:
        """Run git with these arguments until it exits or exceeds the output limit.

        Raises:
            ToolError: it cannot be started, or did not finish in time.
        """
        kept = self.most if most is None else most
        async with self._slots:
            try:
                child = Child([self.path, *arguments], cwd=cwd, env=env, stdin=stdin, most=kept)
            except (OSError, ValueError) as error:
                raise ToolError(f"git could not be started: {one_line(str(error))}") from error
            try:
                async with asyncio.timeout(self.seconds):
                    return await child.finish()
            except TimeoutError:
                raise ToolError(
                    f"git {arguments[0]} took longer than {self.seconds:g} seconds and was ended. "
                    "Ask for less, or start the server with a longer --timeout."
                ) from None
            finally:
                await child.end()
