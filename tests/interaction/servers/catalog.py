"""Something of everything a server can offer."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from trunkline import AssistantMessage, Audio, Context, Image, ResourceError, Server, ToolError, UserMessage
from trunkline.types import EmbeddedResource, Icon, ResourceContents, ResourceLink

PIXEL = b"\x89PNG\r\n\x1a\n"
ICON = Icon(src="https://example.com/icon.png", mime_type="image/png", sizes=["48x48"])
CITIES = ("Oslo", "Osaka", "Ottawa")


class Forecast(Struct):
    """What the weather will be."""

    city: str
    degrees: float


def make() -> Server:
    """Make the server."""
    server = Server(
        "catalog",
        version="1.2.3",
        instructions="Ask for one city at a time.",
        title="The catalog",
        icons=[ICON],
        experimental={"com.example/feature": {"level": 2}},
    )
    add_tools(server)
    add_content_tools(server)
    add_resources(server)
    add_prompts(server)
    return server


def add_tools(server: Server) -> None:
    """Add tools that compute, tell and fail."""

    @server.tool(title="Addition", annotations={"readOnlyHint": True, "title": "Adds"}, icons=[ICON])
    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first
            b: the second
        """
        return a + b

    @server.tool
    def echo(text: str) -> str:
        """Give a text back, from a worker thread."""
        return text

    @server.tool
    async def forecast(city: str) -> Forecast:
        """Forecast the weather of a city."""
        return Forecast(city, 21.5)

    @server.tool
    async def numbers() -> list[int]:
        """Give some numbers."""
        return [1, 2, 3]

    @server.tool(wrap_result=False)
    async def bare_numbers() -> list[int]:
        """Give some numbers, in a list of their own where the revision allows it."""
        return [1, 2, 3]

    @server.tool(input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    async def by_hand(n: int) -> str:
        """Take what a schema written by hand lets pass."""
        return str(n)

    @server.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    async def honest() -> dict[str, Any]:
        """Keep what the output schema promises."""
        return {"n": 1}

    @server.tool
    async def refuse() -> str:
        """Fail on purpose."""
        raise ToolError("the disk is full")

    @server.tool
    async def crash() -> str:
        """Fail by accident."""
        raise RuntimeError("the password is hunter2")

    @server.tool
    async def who(ctx: Context) -> str:
        """Tell what is known of the caller."""
        return json.dumps(
            {
                "name": ctx.client.name,
                "capabilities": dict(ctx.client.capabilities),
                "revision": ctx.client.revision,
                "meta": ctx.meta,
            }
        )

    @server.tool(name="com.example.weather/current")
    async def current() -> str:
        """Have a name with dots and a slash."""
        return "sunny"

    @server.method("acme/double")
    async def double(n: int) -> dict[str, int]:
        return {"doubled": 2 * n}


def add_content_tools(server: Server) -> None:
    """Add a tool for each kind of content."""

    @server.tool
    async def picture() -> Image:
        """Give a picture."""
        return Image(data=PIXEL, format="png")

    @server.tool
    async def sound() -> Audio:
        """Give a sound."""
        return Audio(data=b"RIFF", format="wav")

    @server.tool
    async def link() -> ResourceLink:
        """Point to a resource."""
        return ResourceLink(uri="note://one", name="one", mime_type="text/plain")

    @server.tool
    async def embedded() -> EmbeddedResource:
        """Include a resource."""
        return EmbeddedResource(resource=ResourceContents(uri="note://one", mime_type="text/plain", text="one"))


def add_resources(server: Server) -> None:
    """Add resources, fixed and by template."""

    @server.resource(
        "note://one",
        title="Note one",
        mime_type="text/plain",
        size=3,
        annotations={"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"},
        icons=[ICON],
    )
    async def note() -> str:
        """The first note."""
        return "one"

    @server.resource("image://logo", mime_type="image/png")
    async def logo() -> bytes:
        return PIXEL

    @server.resource("note://locked")
    async def locked() -> str:
        raise ResourceError("the note is locked")

    @server.resource("note://broken")
    async def broken() -> str:
        raise RuntimeError("the password is hunter2")

    @server.resource("city://{name}/map", title="Map of a city", mime_type="text/plain")
    async def map(name: str) -> str:
        """The map of a city."""
        return f"map of {name}"

    @server.resource("file:///{+path}")
    async def file(path: str) -> str:
        return f"contents of {path}"

    @server.completion("city://{name}/map", "name")
    async def cities(value: str) -> list[str]:
        return [city for city in CITIES if city.lower().startswith(value.lower())]


def add_prompts(server: Server) -> None:
    """Add prompts."""

    @server.prompt(title="Greeting", icons=[ICON])
    async def greet(name: str, tone: str = "kind") -> list[Any]:
        """Greet somebody.

        Args:
            name: whom
            tone: how
        """
        return [UserMessage(f"Greet {name}, be {tone}."), AssistantMessage("Hello!")]

    @server.prompt
    async def show() -> list[Any]:
        """Show a picture, a sound and a resource."""
        resource = EmbeddedResource(resource=ResourceContents(uri="note://one", mime_type="text/plain", text="one"))
        return [
            UserMessage(Image(data=PIXEL, format="png")),
            UserMessage(Audio(data=b"RIFF", format="wav")),
            UserMessage(resource),
        ]

    @server.prompt
    async def broken() -> str:
        """Fail by accident."""
        raise RuntimeError("the password is hunter2")

    @server.completion("greet", "name")
    async def names(value: str) -> list[str]:
        return [f"{value}{number}" for number in range(150)]

    @server.completion("greet", "tone")
    async def tones(value: str, arguments: dict[str, str]) -> list[str]:
        return [f"{value} to {arguments.get('name', 'all')}"]


if __name__ == "__main__":
    make().run()
