"""Our client under measure; on uvloop when the environment has it."""

from importlib.util import find_spec
from typing import Any

from benchmarks.clients.workload import arguments, measure, run
from trunkline import Client


async def main() -> None:
    """Connect as the arguments say and measure."""
    revision, command = arguments()
    target: Any = command[0] if command and command[0].startswith("http:") else command
    if not command:
        from benchmarks.servers.trunkline_server import server

        target = server
    async with Client(target, revision=revision) as client:

        async def call() -> object:
            return (await client.call_tool("add", {"a": 1, "b": 2})).structured_content

        await measure(call)


if __name__ == "__main__":
    run(main(), loop="uvloop" if find_spec("uvloop") else "asyncio")
