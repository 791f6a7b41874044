"""A walk through MCP: starts the weather server as a process and shows every message that crosses the wire.

Run it with ``make tour`` or ``python -m examples.weather.tour``. Without a terminal it answers the questions itself and
waits for nobody.
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
from trunkline.transports.process import ProcessLink
from trunkline.types import CreateMessageRequestParams, ElicitRequestParams

SERVER = Path(__file__).with_name("server.py")
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ANSWERS = {"destination": "Paris", "days": 2, "value": True}


class Tour:
    """One server process, the client that talks to it, and the reader who looks on."""

    def __init__(self, screen: Screen, client: Client, recorder: Recorder) -> None:
        """Begin with nothing shown."""
        self.screen = screen
        self.client = client
        self._recorder = recorder
        self._shown = 0

    def show_messages(self) -> None:
        """Show what crossed the wire since the last time."""
        entries = self._recorder.recording.entries
        for entry in entries[self._shown :]:
            self.screen.message(entry)
        self._shown = len(entries)

    # --- the steps ---------------------------------------------------------------------------------------------------

    async def list_tools(self) -> None:
        """Ask what there is."""
        self.screen.say(
            """The client asks which tools there are. Each has a JSON Schema, made from the types of a Python
            function; a model reads it to know how to call the tool."""
        )
        self.screen.code("tools = await client.list_tools()")
        tools = await self.client.list_tools()
        self.show_messages()
        self.screen.result(f"{len(tools)} tools: {', '.join(tool.name for tool in tools)}")

    async def call(self) -> None:
        """Call a tool."""
        self.screen.say("A call names the tool and gives its arguments. The answer is content that a model can read.")
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
        """Get an argument wrong."""
        self.screen.say(
            """A wrong argument is answered with a sentence that lets a model correct itself. The connection goes on.
            (In Python a failed tool raises ToolError, unless told otherwise.)"""
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
        """Watch a call at work."""
        self.screen.say(
            "A tool that takes its time says how far it is. The client asks for that by sending a progress token."
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
        self.screen.result(f"progress was {', '.join(seen)}; then came the result")

    async def be_asked(self) -> None:
        """Answer the tool's questions."""
        self.screen.code(
            """
            # the client was made with Client(..., elicitation=ask_user)
            await client.call_tool("plan_trip")
            """
        )
        answer = await self.client.call_tool("plan_trip")
        self.show_messages()
        self.screen.result(answer.text)

    async def be_sampled(self) -> None:
        """Lend the tool a model."""
        self.screen.say(
            """A tool can also use the client's model, so that a server needs none of its own. In this tour the model is
            one line of Python."""
        )
        self.screen.code(
            """
            # the client was made with Client(..., sampling=model)
            await client.call_tool("describe", {"location": "Oslo"})
            """
        )
        answer = await self.client.call_tool("describe", {"location": "Oslo"})
        self.show_messages()
        self.screen.result(answer.text)

    async def see_change(self) -> None:
        """See the list of tools change."""
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
        """Change one's mind."""
        self.screen.say(
            "Whoever no longer wants an answer cancels the await. The server is told and stops working on it."
        )
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
            self.screen.result("cancelled: no answer comes for that id, and the connection is as good as before")


@asynccontextmanager
async def connected(screen: Screen, revision: str) -> AsyncIterator[Tour]:
    """Start the server, connect, and show how that went."""
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
    """Put a form to the user, field by field; without a terminal it is filled in for them."""
    print(f"\n  ? {question.message}")
    fields: dict[str, Any] = (question.requested_schema or {}).get("properties", {})
    content: dict[str, Any] = {}
    for name, field in fields.items():
        usual = ANSWERS[name]
        label = field.get("description") or ("yes or no" if field["type"] == "boolean" else name)
        typed = screen.read(f"    {label} [{_shown(usual)}]: ") if screen.interactive else ""
        if not screen.interactive:
            print(f"    {label}: {_shown(usual)}   (nobody is here to ask, so the tour answers)")
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
    """Go all the steps."""
    screen.heading("Trunkline: a tour of the Model Context Protocol")
    screen.say(
        """MCP, the Model Context Protocol, lets an AI application (the client) use tools, data and prompts of other
        programs (the servers). Trunkline is a Python package to write such servers, call them and test them. This
        tour starts a small weather server as a process of its own, talks to it over its pipes and then over HTTP, and
        shows every message of the conversation under the line of Python that caused it."""
    )
    screen.lines(
        "the server     examples/weather/server.py",
        "→ {...}        a JSON-RPC message from the client to the server",
        "← {...}        one from the server to the client",
        "…              something long, or shown before, was left out here",
    )
    screen.pause()
    await walk_handshake(screen)
    await walk_stateless(screen)
    screen.pause()
    await walk_http(screen, first=13, handshake=HANDSHAKE, stateless=STATELESS)
    farewell(screen)


async def walk_handshake(screen: Screen) -> None:
    """Go the steps of a handshake revision."""
    screen.heading(f"1. Connect with a handshake ({HANDSHAKE})")
    screen.say(
        """There are five revisions of MCP, in two eras. Up to 2025-11-25 a connection opens with a handshake: the
        client says which revision it speaks and what it can do, the server answers, and both remember it."""
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
        screen.heading("6. Be asked")
        screen.say(
            """A tool may ask the user something while it works: await ctx.elicit(message, type). In this era the server
            sends a request of its own, and the call waits until the client has answered."""
        )
        await tour.be_asked()
        screen.pause()
        screen.heading("7. Lend a model")
        await tour.be_sampled()
        screen.pause()
        screen.heading("8. See the tools change")
        screen.say("Tools may come and go. The server sends a notice, and whoever listens fetches the list again.")
        await tour.see_change()
        screen.pause()
        screen.heading("9. Cancel a call")
        await tour.cancel()
    screen.pause()


async def walk_stateless(screen: Screen) -> None:
    """Go the steps that differ in the stateless revision."""
    screen.heading(f"10. The same server, without a handshake ({STATELESS})")
    screen.say(
        """The newest revision keeps no state between requests: each one says in _meta which revision it speaks and
        what the client can do, and server/discover tells what the server offers. The server is the same file,
        started again. A client that is not told a revision finds out by itself which era a server speaks."""
    )
    screen.code(f'async with Client("server.py", revision="{STATELESS}") as client:')
    async with connected(screen, STATELESS) as tour:
        screen.pause()
        screen.heading("11. Call, and be asked, again")
        screen.say(
            """Without a connection to ask on, the questions travel in the answer: resultType is input_required. The
            client sends the call again with the answers and the sealed requestState. The tool's code did not change."""
        )
        await tour.be_asked()
        screen.pause()
        screen.heading("12. Hear of changes, again")
        screen.say("Here a listener is a request that stays open, subscriptions/listen, and the notices name it.")
        await tour.see_change()


def farewell(screen: Screen) -> None:
    """Say what to do next."""
    screen.heading("What next")
    screen.say("All servers were told to end, and have ended. Try it yourself:")
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
        """Read examples/weather/server.py (the server you just met), examples/weather/test_weather.py (its test), and
        docs/tutorial.md (how to write your own)."""
    )


def main() -> int:
    """Walk the tour; say good-bye politely when interrupted."""
    try:
        asyncio.run(walk(Screen()))
    except KeyboardInterrupt:
        print("\n\nThe tour was ended.")
        return 130
    except BrokenPipeError:
        # Whoever read along has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
