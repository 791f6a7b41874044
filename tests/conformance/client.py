"""The client that the official conformance suite runs: ``python tests/conformance/client.py URL``.

The suite names the scenario and the revision in the environment, starts a server that watches, and judges what that
server sees and how this program ends. It is written on public names alone; a scenario is one function of a client.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeAlias

import aiohttp

from trunkline import Client, OAuth, RequestFailed, ToolError
from trunkline.errors import VerificationError
from trunkline.types import CreateMessageRequestParams, ElicitRequestParams, Implementation

__all__ = ["SCENARIOS", "main"]

Scenario: TypeAlias = Callable[[Client], Awaitable[None]]


async def initialize(client: Client) -> None:
    """Meet the server, which declares nothing that could be listed, and say hello."""
    await client.ping()


async def tools_call(client: Client) -> None:
    """Call the one tool with two numbers."""
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def form_with_defaults(client: Client) -> None:
    """Call the tool that asks; the answer is what the form proposes."""
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults", {})


async def broken_stream(client: Client) -> None:
    """Call the tool whose stream ends before its answer."""
    await client.list_tools()
    await client.call_tool("test_reconnection", {})


async def request_metadata(client: Client) -> None:
    """Make some requests of a server that declares nothing; meeting it, the first was refused."""
    await client.ping()
    await client.ping()


async def request_state(client: Client) -> None:
    """Call four tools in the order the suite wants: state comes back where it came from, and nowhere else."""
    for ending in ("echo_state", "unrelated", "no_state", "no_result_type"):
        await client.call_tool(f"test_mrtr_{ending}", {})


async def standard_headers(client: Client) -> None:
    """Make a request of every method whose headers are looked at."""
    await client.list_tools()
    await client.call_tool("test_headers", {})
    await client.call_tool("my-hyphenated-tool", {})
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    await client.list_prompts()
    await client.get_prompt("test_prompt")


async def custom_headers(client: Client) -> None:
    """Make the calls that the suite wrote down, with their arguments as they are."""
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def invalid_tool_headers(client: Client) -> None:
    """Call every tool that is still offered; those with bad annotations must not be."""
    for tool in await client.list_tools():
        wanted = tool.input_schema.get("properties", {})
        arguments = {name: _made_up(wanted[name]) for name in tool.input_schema.get("required", ())}
        with suppress(RequestFailed, ToolError):
            await client.call_tool(tool.name, arguments)


async def schema_unresolved(client: Client) -> None:
    """List a tool whose schema points into the network, and leave it at that."""
    await client.list_tools()


async def schema_preserved(client: Client) -> None:
    """Send a schema back as it came."""
    tools = {tool.name: tool for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


async def list_skills(client: Client) -> None:
    """List the skills, and read none of their files."""
    await client.list_skills()


async def use_skill(client: Client) -> None:
    """Load the one skill and read the file beside it; loading fails, since the text is not the one in the list."""
    (entry,) = await client.list_skills()
    with suppress(VerificationError):
        skill = await client.load_skill(entry)
        await skill.read("references/FORMS.md")


async def protected_call(client: Client) -> None:
    """Use a server that lets in only whom it knows; how that comes about is the library's business."""
    await client.list_tools()
    await client.call_tool("test-tool", {})


#: What to do in each scenario that is not about authorization.
SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "initialize": initialize,
        "tools_call": tools_call,
        "elicitation-sep1034-client-defaults": form_with_defaults,
        "sse-retry": broken_stream,
        "request-metadata": request_metadata,
        "sep-2322-client-request-state": request_state,
        "http-standard-headers": standard_headers,
        "http-custom-headers": custom_headers,
        "http-invalid-tool-headers": invalid_tool_headers,
        "json-schema-ref-no-deref": schema_unresolved,
        "json-schema-2020-12-preservation": schema_preserved,
        "sep-2640-client-no-prefetch": list_skills,
        "sep-2640-client-verify-digest": use_skill,
        "sep-2640-client-verify-size": use_skill,
        "sep-2640-client-verify-frontmatter": use_skill,
    }
)


async def approve(url: str) -> str:
    """Play the browser of a user who approves: open the page, and tell where it leads without going there."""
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as page:
        return page.headers["Location"]


def _is_local(issuer: str) -> bool:
    """Trust the suite's authorization servers with credentials: it does not say beforehand where they are."""
    return issuer.startswith("http://localhost:")


def _login(scenario: str, context: Mapping[str, Any]) -> OAuth:
    """Say how to log in: as the suite's context wants it, by default as somebody with a browser."""
    machine: dict[str, Any] = {
        "auth/client-credentials-jwt": lambda: {
            "grant": "client_credentials",
            "private_key": context["private_key_pem"],
            "signing_algorithm": context["signing_algorithm"],
        },
        "auth/client-credentials-basic": lambda: {
            "grant": "client_credentials",
            "client_secret": context["client_secret"],
        },
        "auth/enterprise-managed-authorization": lambda: {
            "grant": "enterprise",
            "client_secret": context["client_secret"],
            "id_token": context["idp_id_token"],
            "idp_client_id": context["idp_client_id"],
            "idp_token_endpoint": context["idp_token_endpoint"],
        },
        "auth/wif-jwt-bearer": lambda: {"grant": "jwt_bearer", "assertion": context["valid_jwt"]},
    }
    if scenario in machine:
        return OAuth(client_id=context["client_id"], issuer=_is_local, store="memory", **machine[scenario]())
    given = {name: context[name] for name in ("client_id", "client_secret", "issuer") if name in context}
    document = "https://conformance-test.local/client-metadata.json"
    return OAuth(client_metadata_url=document, open_browser=approve, store="memory", **given)


#: Where the server refuses the first request and names what it speaks: the revision is agreed on, and not insisted on.
_AGREED = frozenset({"request-metadata"})

_VALUES: Mapping[str, Any] = MappingProxyType(
    {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
)


def _made_up(schema: Mapping[str, Any]) -> Any:
    """Give some value of a schema's type."""
    return _VALUES.get(schema.get("type", ""))


def _elicited(question: ElicitRequestParams) -> dict[str, Any]:
    """Accept with what the form proposes, and with yes where it proposes nothing."""
    fields = (question.requested_schema or {}).get("properties", {})
    return {name: True for name, field in fields.items() if field.get("type") == "boolean" and "default" not in field}


def _sampled(question: CreateMessageRequestParams) -> str:
    """Answer as a model would."""
    return "This is a test response from the client"


async def run(url: str) -> None:
    """Play the scenario that the environment names.

    Raises:
        SystemExit: there is no such scenario.
    """
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    protected = name.startswith("auth/")
    scenario = protected_call if protected else SCENARIOS.get(name)
    if scenario is None:
        sys.exit(f"There is no scenario {name!r}.")
    client = Client(
        url,
        revision="auto" if name in _AGREED else os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        client_info=Implementation(name="trunkline-conformance", version="1.0.0"),
        elicitation=_elicited,
        sampling=_sampled,
        roots=["file:///project"],
        timeout=20.0,
        auth=_login(name, context) if protected else None,
    )
    async with client:
        await scenario(client)


def main() -> None:
    """Take the URL from the command line and run."""
    asyncio.run(run(sys.argv[1]))


if __name__ == "__main__":
    main()
