"""A FastMCP server with an extension, tasks, sessions, shared values, pages and completions."""

import asyncio
from typing import Any

import mcp_types
from fastmcp import Context, FastMCP
from fastmcp.dependencies import CallArgument, Depends, Shared
from fastmcp.server.dependencies import get_session
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.server.lifespan import lifespan
from fastmcp.server.sessions import SessionId, SessionProvider
from fastmcp_tasks import TasksExtension

EVENTS: list[str] = []


@lifespan
async def first(server: Any) -> Any:
    EVENTS.append("first")
    yield {"a": 1}
    EVENTS.append("first ended")


@lifespan
async def second(server: Any) -> Any:
    EVENTS.append("second")
    yield {"b": 2}
    EVENTS.append("second ended")


class EchoParams(mcp_types.RequestParams):
    text: str


class EchoResult(mcp_types.Result):
    text: str


class Echo(ServerExtension):
    identifier = "com.acme/echo"
    auto_register = True

    def settings(self) -> dict[str, Any]:
        return {"loud": True}

    def methods(self) -> Any:
        async def echo(ctx: Any, params: EchoParams) -> EchoResult:
            return EchoResult(text=f"{self.server.name}: {params.text}")

        return [MethodBinding("acme/echo", EchoParams, echo)]

    async def intercept_tool_call(self, params: Any, context: Any, call_next: Any) -> Any:
        EVENTS.append(f"call {params.name}")
        return await call_next()


child = FastMCP("child")
child.add_extension(Echo())
server = FastMCP("features", lifespan=first | second, list_page_size=2, cache_ttl=60, cache_scope="public")
server.mount(child)
server.add_extension(TasksExtension())
server.add_provider(SessionProvider())


def greeting(name: str = CallArgument()) -> str:
    return f"Hello, {name}!"


def counter() -> list[int]:
    EVENTS.append("counter made")
    return []


@server.tool
def greet(name: str, text: str = Depends(greeting), seen: list[int] = Shared(counter)) -> str:  # noqa: B008
    seen.append(1)
    return f"{text} {len(seen)}"


@server.tool
async def remember(word: str, session_id: SessionId) -> list[str]:
    session = await get_session(session_id)
    words = [*await session.get("words", []), word]
    await session.set("words", words)
    return words


@server.tool(task=True)
async def slow(ctx: Context) -> str:
    await asyncio.sleep(0.01)
    return "done"


@server.tool
def events(ctx: Context) -> dict[str, Any]:
    return {"events": EVENTS, "lifespan": ctx.lifespan_context}


@server.completion
def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    return [each for each in ("red", "green") if each.startswith(argument.value)]


if __name__ == "__main__":
    server.run()
