"""A tour of MCP: starts the weather server as a process and shows every message that is sent.

Run it with ``make tour`` or ``python -m examples.weather.tour``. Without a terminal it answers the questions itself and
never waits.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from examples.weather.screen import Screen
from examples.weather.tour_http import walk_http
from trunkline import Client
from trunkline.testing import Recorder
from trunkline.transports import ProcessLink
from trunkline.types import CreateMessageRequestParams, ElicitRequestParams

SERVER = Path(__file__).with_name("server.py")
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ANSWERS = {"destination": "Paris", "days": 2, "value": True}


class Tour:
    """One server process, the client that talks to it, and the screen."""

    def __init__(self, screen: Screen, client: Client, recorder: Recorder) -> None:
        """Start with nothing shown."""
        self.screen = screen
        self.client = client
        self._recorder = recorder
        self._shown = 0

    def show_messages(self) -> None:
        """Show the messages since the last call."""
        entries = self._recorder.recording.entries
        for entry in entries[self._shown :]:
            self.screen.message(entry)
        self._shown = len(entries)

    # --- the steps ---------------------------------------------------------------------------------------------------

    async def list_tools(self) -> None:
        """List the tools."""
        self.screen.say(
            """The client lists the tools. Each has a JSON Schema, generated from the types of a Python function; a
            model reads it to know how to call the tool."""
        )
        self.screen.code("tools = await client.list_tools()")
        tools = await self.client.list_tools()
        self.show_messages()
        self.screen.result(f"{len(tools)} tools: {', '.join(tool.name for tool in tools)}")

    async def call(self) -> None:
        """Call a tool."""
        self.screen.say("A call contains the name of the tool and its arguments. The answer is content for a model.")
        self.screen.code(
            """
            arguments = {"location": "San Francisco", "units": "imperial"}
            answer = await client.call_tool("com.example.weather/current", arguments)
            """
        )
        arguments = {"location": "San Francisco", "units": "imperial"}
        answer = await self.client.call_tool("com.example.weather/current", arguments)
        self.show_messages()
        self.screen.result(answer.text)

    async def mistake(self) -> None:
        """Send a wrong argument."""
        self.screen.say(
            """A wrong argument is answered with a message that lets a model correct itself. The connection stays
            open. (In Python a failed tool raises ToolError, unless raise_on_error is False.)"""
        )
        self.screen.code(
            """
            arguments = {"town": "Oslo"}
            name = "com.example.weather/current"
            answer = await client.call_tool(name, arguments, raise_on_error=False)
            """
        )
        answer = await self.client.call_tool("com.example.weather/current", {"town": "Oslo"}, raise_on_error=False)
        self.show_messages()
        self.screen.result(answer.text)

    async def progress(self) -> None:
        """Show the progress of a call."""
        self.screen.say(
            "A tool can report progress while it runs. The client requests this by sending a progress token."
        )
        self.screen.code(
            """
            arguments = {"location": "Oslo", "days": 3}
            await client.call_tool("forecast", arguments, on_progress=show)
            """
        )
        seen: list[str] = []

        def show(done: float, total: float | None, message: str | None) -> None:
            seen.append(f"{done:g} of {total:g}" if total else f"{done:g}")

        await self.client.call_tool("forecast", {"location": "Oslo", "days": 3}, on_progress=show)
        self.show_messages()
        self.screen.result(f"progress: {', '.join(seen)}; then the result")

    async def be_asked(self) -> None:
        """Answer the tool's questions."""
        self.screen.code(
            """
            # the client was created with Client(..., elicitation=ask_user)
            await client.call_tool("plan_trip")
            """
        )
        answer = await self.client.call_tool("plan_trip")
        self.show_messages()
        self.screen.result(answer.text)

    async def be_sampled(self) -> None:
        """Answer a sampling request."""
        self.screen.say(
            """A tool can use the client's model, so that a server needs none. In this tour the model is one line of
            Python."""
        )
        self.screen.code(
            """
            # the client was created with Client(..., sampling=model)
            await client.call_tool("describe", {"location": "Oslo"})
            """
        )
        answer = await self.client.call_tool("describe", {"location": "Oslo"})
        self.show_messages()
        self.screen.result(answer.text)

    async def see_change(self) -> None:
        """Subscribe to changes of the tools."""
        self.screen.code(
            """
            async with client.listen(tools=True) as changes:
                await client.call_tool("watch_storms", {"on": True})
                await anext(changes)
                tools = await client.list_tools()
            """
        )
        async with self.client.listen(tools=True) as changes:
            await self.client.call_tool("watch_storms", {"on": True})
            await anext(changes)
            tools = await self.client.list_tools()
            self.show_messages()
        self.screen.result(f"there are {len(tools)} tools now; the new one is {tools[-1].name}")

    async def cancel(self) -> None:
        """Cancel a call."""
        self.screen.say("To cancel a call, cancel the await. The server is notified and stops working on it.")
        self.screen.code(
            """
            async with asyncio.timeout(0.2):
                await client.call_tool("forecast", {"location": "Oslo", "days": 1000})
            await client.ping()
            """
        )
        try:
            async with asyncio.timeout(0.2):
                await self.client.call_tool("forecast", {"location": "Oslo", "days": 1000})
        except TimeoutError:
            await self.client.ping()
            self.show_messages()
            self.screen.result("cancelled: there is no answer for that id, and the connection is still usable")


@asynccontextmanager
async def connected(screen: Screen, revision: str) -> AsyncIterator[Tour]:
    """Start the server, connect, and show the messages."""
    command = [sys.executable, str(SERVER)]
    recorder = Recorder(ProcessLink.spawn(command), side="client")

    async def ask_user(question: ElicitRequestParams) -> dict[str, Any]:
        tour.show_messages()
        return ask(screen, question)

    def model(request: CreateMessageRequestParams) -> str:
        return "Oslo lies quietly under fresh snow."

    client = Client(recorder, revision=revision, elicitation=ask_user, sampling=model)
    tour = Tour(screen, client, recorder)
    async with client:
        tour.show_messages()
        info = client.server_info
        screen.result(f"connected to {info.name if info else 'a server'}, revision {client.revision}")
        yield tour


def ask(screen: Screen, question: ElicitRequestParams) -> dict[str, Any]:
    """Ask the user for each field of a form; without a terminal, use the defaults."""
    print(f"\n  ? {question.message}")
    fields: dict[str, Any] = (question.requested_schema or {}).get("properties", {})
    content: dict[str, Any] = {}
    for name, field in fields.items():
        usual = ANSWERS[name]
        label = field.get("description") or ("yes or no" if field["type"] == "boolean" else name)
        typed = screen.read(f"    {label} [{_shown(usual)}]: ") if screen.interactive else ""
        if not screen.interactive:
            print(f"    {label}: {_shown(usual)}   (there is no terminal, so the tour answers)")
        content[name] = _typed(typed.strip(), field["type"], usual)
    print()
    return content


def _shown(value: object) -> str:
    return "yes" if value is True else str(value)


def _typed(text: str, kind: str, usual: Any) -> Any:
    if not text:
        return usual
    if kind == "boolean":
        return text.lower().startswith(("y", "t", "1"))
    if kind == "integer":
        return min(14, max(1, int(text))) if text.isdigit() else usual
    return text


async def walk(screen: Screen) -> None:
    """Run all steps."""
    screen.heading("Trunkline: a tour of the Model Context Protocol")
    screen.say(
        """MCP, the Model Context Protocol, lets an AI application (the client) use tools, data and prompts of other
        programs (the servers). Trunkline is a Python package to write, call and test such servers. This tour starts a
        small weather server as a process, talks to it over its pipes and then over HTTP, and shows every message
        below the line of Python that caused it."""
    )
    screen.lines(
        "the server     examples/weather/server.py",
        "→ {...}        a JSON-RPC message from the client to the server",
        "← {...}        a message from the server to the client",
        "…              something long, or shown before, is left out",
    )
    screen.pause()
    await walk_handshake(screen)
    await walk_stateless(screen)
    screen.pause()
    await walk_http(screen, first=13, handshake=HANDSHAKE, stateless=STATELESS)
    farewell(screen)


async def walk_handshake(screen: Screen) -> None:
    """Run the steps of a handshake revision."""
    screen.heading(f"1. Connect with a handshake ({HANDSHAKE})")
    screen.say(
        """There are five revisions of MCP, in two eras. Up to 2025-11-25 a connection opens with a handshake: the
        client sends its revision and capabilities, the server answers with its own, and both keep them."""
    )
    screen.code(f'async with Client("server.py", revision="{HANDSHAKE}") as client:')
    async with connected(screen, HANDSHAKE) as tour:
        for title, step in (
            ("2. List the tools", tour.list_tools),
            ("3. Call one", tour.call),
            ("4. Make a mistake", tour.mistake),
            ("5. See progress", tour.progress),
        ):
            screen.pause()
            screen.heading(title)
            await step()
        screen.pause()
        screen.heading("6. Answer a question")
        screen.say(
            """A tool can ask the user a question: await ctx.elicit(message, type). In this era the server sends a
            request to the client, and the call waits for the answer."""
        )
        await tour.be_asked()
        screen.pause()
        screen.heading("7. Provide a model")
        await tour.be_sampled()
        screen.pause()
        screen.heading("8. Notice that the tools changed")
        screen.say(
            "Tools can be added and removed. The server sends a notification, and the client lists the tools again."
        )
        await tour.see_change()
        screen.pause()
        screen.heading("9. Cancel a call")
        await tour.cancel()
    screen.pause()


async def walk_stateless(screen: Screen) -> None:
    """Run the steps that differ in the stateless revision."""
    screen.heading(f"10. The same server, without a handshake ({STATELESS})")
    screen.say(
        """The newest revision keeps no state between requests: each one contains the revision and the
        client's capabilities in _meta, and server/discover returns those of the server. The server is the same file,
        started again. A client without a revision= detects which era a server supports."""
    )
    screen.code(f'async with Client("server.py", revision="{STATELESS}") as client:')
    async with connected(screen, STATELESS) as tour:
        screen.pause()
        screen.heading("11. Answer a question, again")
        screen.say(
            """Without a connection to ask on, the questions are part of the result: resultType is input_required.
            The client sends the call again with the answers and the sealed requestState. The code is the same."""
        )
        await tour.be_asked()
        screen.pause()
        screen.heading("12. Notice that the tools changed, again")
        screen.say(
            "Here the subscription is a request that stays open, subscriptions/listen. Notifications contain its id."
        )
        await tour.see_change()


def farewell(screen: Screen) -> None:
    """Print what to do next."""
    screen.heading("What next")
    screen.say("All servers have been stopped. Try it yourself:")
    program = Path(sys.executable).with_name("trunkline")
    trunkline = os.path.relpath(program) if program.exists() and Path.cwd() in program.parents else "trunkline"
    screen.code(
        f"""
        {trunkline} list tools examples/weather/server.py
        {trunkline} call examples/weather/server.py forecast location=Oslo days=5
        {trunkline} call examples/weather/server.py plan_trip
        {trunkline} run examples/weather/server.py --http
        """
    )
    screen.say(
        """Read examples/weather/server.py (the server of this tour), examples/weather/test_weather.py (its test), and
        docs/tutorial.md (how to write your own)."""
    )


def main() -> int:
    """Run the tour; exit with 130 if it is interrupted."""
    try:
        asyncio.run(walk(Screen()))
    except KeyboardInterrupt:
        print("\n\nThe tour was interrupted.")
        return 130
    except BrokenPipeError:
        # The reader closed the pipe; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
