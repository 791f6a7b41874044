"""Serves the small application as a program: options as JSON, the URL on stdout, exit code 2 for a bad setting."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tests.transports.http.small_app import Message, Receive, Send, SmallApp
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.serve import serve

options: dict[str, Any] = json.loads(sys.argv[1])


def tell(word: str) -> None:
    """Write a line for the test."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


class Telling(SmallApp):
    """Tells the test what happens, and can be stubborn."""

    async def answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Report that a request arrived, and whether it was cancelled."""
        tell(f"request {scope['path']}")
        try:
            await super().answer(scope, receive, send)
        except asyncio.CancelledError:
            tell("cancelled")
            raise

    async def live(self, receive: Receive, send: Send) -> None:
        """Fail to start, or take for ever, when told to."""
        if options.get("start") == "raises":
            raise ConfigError("The store at example.db cannot be opened.")
        if options.get("start") == "says no":
            await receive()
            await send({"type": "lifespan.startup.failed", "message": "the store is locked."})
            return
        if options.get("start") == "hangs":
            tell("starting")
            await asyncio.Event().wait()
        await super().live(receive, send)
        tell("ended")

    async def drain(self, seconds: float) -> None:
        """Release what waits when the drain begins, when told to."""
        tell("draining")
        if options.get("release"):
            asyncio.get_running_loop().call_later(0.1, self.release.set)
        await super().drain(seconds)


async def main() -> None:
    """Serve until a signal."""
    limits = Limits(**options.get("limits", {}))
    await serve(Telling(), limits=limits, started=tell, **{"port": 0, **options.get("serve", {})})
    tell("returned")


for missing in options.get("missing", []):
    sys.modules[missing] = None  # type: ignore[assignment]
loop = None
if options.get("loop") == "uvloop":
    import uvloop

    loop = uvloop.new_event_loop
try:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
except ConfigError as problem:
    sys.stderr.write(f"{problem}\n")
    sys.exit(2)
