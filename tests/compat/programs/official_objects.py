"""A server for ``mcp.server.mcpserver``: schemas of pydantic, whole results, rounds by hand, security of templates."""

from typing import Annotated

from mcp.server.extension import Extension, ToolBinding
from mcp.server.mcpserver import Context, MCPServer, ResourceSecurity
from mcp.server.mcpserver.resources import TextResource
from mcp_types import CallToolResult, ElicitRequest, ElicitRequestFormParams, InputRequiredResult, TextContent
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int | None = None


class Extra(Extension):
    identifier = "com.example/extra"

    def tools(self):
        def ping() -> str:
            return "pong"

        return [ToolBinding(fn=ping)]


mcp = MCPServer("objects", extensions=[Extra()])


@mcp.tool()
def find(name: str, near: list[str] | None = None) -> Annotated[CallToolResult, Person]:
    """Find a person."""
    return CallToolResult(content=[TextContent(text=f"{name} {near}")], structured_content={"name": name})


@mcp.tool()
def people() -> list[Person]:
    return [Person(name="Ada"), Person(name="Bob", age=3)]


@mcp.tool()
async def greet(ctx: Context) -> str | InputRequiredResult:
    answers = ctx.input_responses
    if answers:
        return f"Hello, {answers['who'].content['name']}! {ctx.request_state}"
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    question = ElicitRequest(params=ElicitRequestFormParams(message="Who?", requested_schema=form))
    return InputRequiredResult(input_requests={"who": question}, request_state="first round")


@mcp.resource("docs://{+path}")
def doc(path: str) -> str:
    return path


@mcp.resource("range://{+span}", security=ResourceSecurity(exempt_params={"span"}))
def span(span: str) -> dict:
    return {"span": span}


mcp.add_resource(TextResource(uri="note://one", name="one", text="a note"))

if __name__ == "__main__":
    mcp.run()
