"""The tools that send a request to the client (sampling, elicitation by form and by URL, roots), in both eras.

And the form with every kind of field.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

import trunkline.types as t
from trunkline import Context, Server, ToolError
from trunkline.errors import UrlElicitationRequired
from trunkline.server import MAX_ELICITATION_ID_LENGTH, ElicitationResult
from trunkline.types import TextContent
from trunkline_servers.everything.basic_tools import ACTS, ACTS_OUTSIDE, READS
from trunkline_servers.everything.state import state_of

__all__ = [
    "CAPABILITY_TAG",
    "add_client_request_tools",
    "add_extra_client_request_tools",
    "all_fields_form",
    "describe_answer",
    "pretty_json",
    "show_value",
]


def all_fields_form() -> dict[str, Any]:
    """Return the form; names, types, bounds and defaults are those of the official server."""
    fields = {**_texts(), **_numbers(), **_choices()}
    return {"type": "object", "properties": fields, "required": ["name"]}


def _texts() -> dict[str, Any]:
    return {
        "name": _field("string", "Text", "What you are called"),
        "check": _field("boolean", "Yes or no", "Whether you agree"),
        "firstLine": _field(
            "string",
            "Text with a default",
            "How a story should begin",
            default="It was a dark and stormy night.",
        ),
        "email": _field("string", "Text that is an email address", "Where mail reaches you", format="email"),
        "homepage": _field("string", "Text that is a URI", "A page of yours", format="uri"),
        "birthdate": _field("string", "Text that is a date", "When you were born", format="date"),
    }


def _numbers() -> dict[str, Any]:
    return {
        "integer": _field("integer", "Whole number", "One you like", minimum=1, maximum=100, default=42),
        "number": _field("number", "Number from 0 to 1000", "Another you like", minimum=0, maximum=1000, default=3.14),
    }


def _choices() -> dict[str, Any]:
    friends = ["Monica", "Rachel", "Joey", "Chandler", "Ross", "Phoebe"]
    instruments = {"type": "string", "enum": ["Guitar", "Piano", "Violin", "Drums", "Bass"]}
    fish = {"anyOf": _titled("fish", "Tuna", "Salmon", "Trout")}
    pets = ["Cats", "Dogs", "Birds", "Fish", "Reptiles"]
    several = {"minItems": 1, "maxItems": 3}
    return {
        "untitledSingleSelectEnum": _field("string", "One of several", "A friend", enum=friends, default="Monica"),
        "untitledMultipleSelectEnum": _field(
            "array", "Some of several", "Instruments", **several, items=instruments, default=["Guitar"]
        ),
        "titledSingleSelectEnum": _field(
            "string",
            "One of several, with titles",
            "A hero",
            oneOf=_titled("hero", "Superman", "Green Lantern", "Wonder Woman"),
            default="hero-1",
        ),
        "titledMultipleSelectEnum": _field(
            "array", "Some of several, with titles", "Fish", **several, items=fish, default=["fish-1"]
        ),
        "legacyTitledEnum": _field(
            "string",
            "One of several, titled as older revisions do",
            "A pet",
            enum=[f"pet-{number}" for number in range(1, len(pets) + 1)],
            enumNames=pets,
            default="pet-1",
        ),
    }


def _field(kind: str, title: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "title": title, "description": description, **more}


def _titled(prefix: str, *titles: str) -> list[dict[str, str]]:
    return [{"const": f"{prefix}-{number}", "title": title} for number, title in enumerate(titles, 1)]


_LINES = (
    ("name", "Name"),
    ("check", "Agreed to terms"),
    ("email", "Email"),
    ("homepage", "Homepage"),
    ("birthdate", "Birthdate"),
    ("integer", "Favorite Integer"),
    ("number", "Favorite Number"),
)


def describe_answer(answer: ElicitationResult[Any]) -> list[TextContent]:
    """Return content that describes the user's action, the values, and the raw answer."""
    content: dict[str, Any] = {"action": answer.action}
    if answer.action == "accept":
        content["content"] = answer.data
        lines = [f"- {label}: {show_value(answer.data[name])}" for name, label in _LINES if name in answer.data]
        told = ["✅ User provided the requested information!", "User inputs:\n" + "\n".join(lines)]
    elif answer.action == "decline":
        told = ["❌ User declined to provide the requested information."]
    else:
        told = ["⚠️ User cancelled the elicitation dialog."]
    return [TextContent(text=text) for text in (*told, f"\nRaw result: {pretty_json(content)}")]


def show_value(value: Any) -> str:
    """Return a value of a form as JavaScript would print it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


#: Prefix of tags that name a client capability which a tool needs.
CAPABILITY_TAG = "needs:"

_PREREQUISITE = "https://example.com/prerequisite"
#: Bounded, since the URL is kept between two calls.
_LONGEST_URL = 2_000


def add_client_request_tools(server: Server) -> None:
    """Register the tools that the official server has."""
    _add(server, get_roots_list, "get-roots-list", READS, "roots")
    _add(server, trigger_elicitation_request, "trigger-elicitation-request", ACTS, "elicitation.form")
    _add(server, trigger_url_elicitation, "trigger-url-elicitation", ACTS_OUTSIDE, "elicitation.url")
    _add(server, trigger_sampling_request, "trigger-sampling-request", ACTS_OUTSIDE, "sampling")


def add_extra_client_request_tools(server: Server) -> None:
    """Register the tools that the official server lacks."""
    _add(server, ask_twice, "ask-twice", ACTS, "elicitation.form")
    _add(server, ask_everything, "ask-everything", ACTS, "elicitation.form", "sampling", "roots")
    _add(server, sample_with_tools, "sample-with-tools", ACTS_OUTSIDE, "sampling.tools")
    _add(server, visit_page, "visit-page", ACTS_OUTSIDE, "elicitation.url")


def _add(server: Server, function: Any, name: str, annotations: Any, *needs: str) -> None:
    title = name.replace("-", " ").capitalize()
    tags = {CAPABILITY_TAG + capability for capability in needs}
    server.add_tool(function, name=name, title=title, annotations=annotations, tags=tags, output_schema=None)


# --- tools of the official server ------------------------------------------------------------------------------------


async def get_roots_list(ctx: Context) -> str:
    """List the folders the client shares; this server does not touch them."""
    roots = await ctx.list_roots()
    if not roots:
        return "The client supports roots but no roots are currently configured."
    listed = "\n\n".join(f"{n}. {root.name or 'Unnamed Root'}\n   URI: {root.uri}" for n, root in enumerate(roots, 1))
    return f"Current MCP Roots ({len(roots)} total):\n\n{listed}\n\nThis server only lists them and reads no file."


async def trigger_sampling_request(
    ctx: Context,
    prompt: Annotated[str, Meta(description="The prompt for the model")],
    maxTokens: Annotated[float, Meta(description="The maximum length of its answer, in tokens")] = 100,
) -> str:
    """Send a prompt to the client's model and return its answer."""
    if not 1 <= maxTokens < 2**31:
        raise ToolError("maxTokens must be a whole number from 1.")
    answer = await ctx.sample(
        f"Resource trigger-sampling-request context: {prompt}",
        max_tokens=int(maxTokens),
        system_prompt="You are a helpful test server.",
        temperature=0.7,
    )
    result = msgspec.to_builtins(answer.result)
    told = {name: result[name] for name in ("model", "stopReason", "role", "content") if name in result}
    return f"LLM sampling result: \n{pretty_json(told)}"


async def trigger_elicitation_request(ctx: Context) -> list[t.TextContent]:
    """Ask the user to fill in a form with every kind of field."""
    answer = await ctx.elicit("Please provide inputs for the following fields:", schema=all_fields_form())
    return describe_answer(answer)


async def trigger_url_elicitation(
    ctx: Context,
    url: Annotated[str, Meta(description="The page to open", extra_json_schema={"format": "uri"})],
    message: Annotated[
        str, Meta(description="The message shown to the user")
    ] = "Please open the link to complete this action.",
    elicitationId: Annotated[str, Meta(description="The id of the elicitation; by default a random UUID")]
    | None = None,
    errorPath: Annotated[
        bool,
        Meta(
            description="Fail first with error -32042 and a page that must be visited; the same call then succeeds. "
            "In revisions without that error, the page is requested like the other"
        ),
    ] = False,
) -> list[t.TextContent]:
    """Ask the user to open a page, by an elicitation or by the error that requires one."""
    _check_page(url)
    if elicitationId and (len(elicitationId) > MAX_ELICITATION_ID_LENGTH or not elicitationId.isprintable()):
        raise ToolError(
            f"elicitationId must have no more than {MAX_ELICITATION_ID_LENGTH} characters, all of them printable."
        )
    name = elicitationId or str(await ctx.once("id", lambda: str(uuid.uuid4())))
    if errorPath:
        await _ask_for_prerequisite(ctx, (ctx.session, url, elicitationId))
    answer = await ctx.elicit_url(message, url, elicitation_id=name, key="page")
    told = {
        "accept": f"✅ User completed the URL elicitation flow.\nElicitation ID: {name}\nURL: {url}",
        "decline": f"❌ User declined to open the URL (Elicitation ID: {name}).",
        "cancel": f"⚠️ User cancelled the URL elicitation (Elicitation ID: {name}).",
    }
    texts = (told[answer.action], f"\nRaw result: {pretty_json({'action': answer.action})}")
    return [t.TextContent(text=text) for text in texts]


async def _ask_for_prerequisite(ctx: Context, key: tuple[Any, ...]) -> None:
    text = "Open this page first, then call the tool again with the same arguments."
    if not ctx.client.knows_url_elicitation_error:
        await ctx.elicit_url(text, _PREREQUISITE, key="prerequisite")
    elif state_of(ctx).issue_once(key):
        page = {"mode": "url", "url": _PREREQUISITE, "message": text, "elicitationId": str(uuid.uuid4())}
        raise UrlElicitationRequired("This request needs a page to be visited first.", data={"elicitations": [page]})


def _check_page(url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        sound = False
    if not sound:
        raise ToolError("url must be a http or https URL without a user name, such as https://example.com/form.")
    if len(url) > _LONGEST_URL:
        raise ToolError(f"url must not have more than {_LONGEST_URL} characters.")


# --- additional tools ------------------------------------------------------------------------------------------------


@dataclass
class Traveller:
    """Who travels."""

    name: Annotated[str, Meta(description="Your name", min_length=1, max_length=100)]
    bags: Annotated[int, Meta(description="How many bags", ge=0, le=9)] = 1


@dataclass
class Meal:
    """A meal."""

    meal: Literal["fish", "vegetables", "nothing"]


async def ask_twice(ctx: Context) -> str:
    """Ask the user two questions, the second depending on the first answer."""
    first = await ctx.elicit("Who is travelling?", Traveller, key="traveller")
    if first.action != "accept":
        return f"No one travels: the first question was answered with {first.action}."
    second = await ctx.elicit(f"What does {first.data.name} eat on the way?", Meal, key="meal")
    meal = second.data.meal if second.action == "accept" else f"({second.action})"
    return f"{first.data.name} travels with {first.data.bags} bags and eats {meal}."


async def ask_everything(ctx: Context) -> dict[str, Any]:
    """Send an elicitation, a sampling request and a roots request, all at once."""
    user, model, roots = await asyncio.gather(
        ctx.elicit("Who is travelling?", Traveller, key="traveller"),
        ctx.sample("Name one thing to pack.", max_tokens=50, key="packing"),
        ctx.list_roots(key="folders"),
    )
    name = user.data.name if user.action == "accept" else None
    return {"traveller": name, "action": user.action, "packing": model.text, "roots": [root.uri for root in roots]}


_CLOCK = t.Tool(
    name="read-clock",
    description="Return the time at the station.",
    input_schema={"type": "object", "properties": {"station": {"type": "string"}}, "required": ["station"]},
)


async def sample_with_tools(ctx: Context, question: str = "What time is it at the station?") -> str:
    """Let the client's model use a tool of this server while it answers."""
    turns: list[Any] = [t.SamplingMessage(role="user", content=t.TextContent(text=question[:2000]))]
    answer = await ctx.sample(turns, max_tokens=200, tools=[_CLOCK], key="first")
    if not answer.tool_uses:
        return f"The model answered without the tool: {answer.text}"
    results = [
        t.ToolResultContent(tool_use_id=use.id, content=[t.TextContent(text="12:00")]) for use in answer.tool_uses
    ]
    turns += [
        t.SamplingMessage(role="assistant", content=answer.content),
        t.SamplingMessage(role="user", content=list(results)),
    ]
    final = await ctx.sample(turns, max_tokens=200, tools=[_CLOCK], key="second")
    return f"The model used {len(results)} tool calls and says: {final.text}"


async def visit_page(
    ctx: Context, url: Annotated[str, Meta(description="The page to open", extra_json_schema={"format": "uri"})]
) -> str:
    """Send the user to a page and notify the client when it is finished, where the revision has that notification."""
    _check_page(url)
    answer = await ctx.elicit_url("Please finish this page.", url, done=lambda: True, key="page")
    return f"The page was answered with {answer.action}."


def pretty_json(value: Any) -> str:
    """Return a value as JSON on several lines."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
