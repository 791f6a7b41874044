"""A server of FastMCP whose resource and prompt ask, offered as tools too, and whose middleware shares an object."""

from fastmcp import Context, FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms import PromptsAsTools, ResourcesAsTools
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

mcp = FastMCP("questions")
SHARED = object()


class Sharing(Middleware):
    async def on_call_tool(self, context, call_next):
        await context.fastmcp_context.set_state("shared", SHARED, serializable=False)
        return await call_next(context)


def greeting(ctx: Context, word: str) -> str | InputRequiredResult:
    if ctx.input_responses is not None:
        return f"{ctx.request_state}, {ctx.input_responses['name'].content['name']}"
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = ElicitRequestFormParams(message="Name?", requested_schema=schema)
    request = ElicitRequest(method="elicitation/create", params=params)
    return InputRequiredResult(result_type="input_required", input_requests={"name": request}, request_state=word)


@mcp.resource("greeting://{word}")
def resource(word: str, ctx: Context) -> str | InputRequiredResult:
    return greeting(ctx, word)


@mcp.prompt
def greet(word: str, ctx: Context) -> str | InputRequiredResult:
    return greeting(ctx, word)


@mcp.tool
async def is_shared(ctx: Context) -> bool:
    return await ctx.get_state("shared") is SHARED


@mcp.tool
def session_id(ctx: Context) -> str:
    return ctx.session_id


mcp.add_middleware(Sharing())
mcp.add_transform(ResourcesAsTools(mcp))
mcp.add_transform(PromptsAsTools(mcp))

if __name__ == "__main__":
    mcp.run()
