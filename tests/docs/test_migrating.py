"""What the page on migrating says is accepted, is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support import run_async
from trunkline import Client, Server


def _rows(**given: Any) -> list[Any]:
    return [pytest.param(name, value, id=name) for name, value in given.items()]


async def _answer(*given: Any) -> None:
    """Stand for any callback."""


@pytest.mark.filterwarnings("ignore::trunkline.compat.CompatibilityWarning")
@pytest.mark.parametrize(
    ("option", "value"),
    _rows(
        instructions="x",
        version="1",
        title="t",
        description="d",
        website_url="https://example.com",
        icons=[],
        auth=None,
        middleware=[],
        tools=[],
        on_duplicate="warn",
        mask_error_details=False,
        dereference_schemas=True,
        strict_input_validation=True,
        list_page_size=50,
        cache_ttl=1,
        experimental_capabilities={},
        resource_security=object(),
        dependencies=["httpx"],
        debug=True,
        log_level="INFO",
        warn_on_duplicate_tools=True,
        warn_on_duplicate_resources=True,
        warn_on_duplicate_prompts=True,
    ),
)
def test_a_constructor_argument_of_the_others_is_accepted(option: str, value: Any) -> None:
    assert Server("moved", **{option: value}).name == "moved"


@pytest.mark.parametrize("option", ["providers", "transforms", "session_state_store", "extensions", "subscriptions"])
def test_a_constructor_argument_that_cannot_be_honoured_is_refused_by_name(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        Server("moved", **{option: [object()]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    _rows(
        host="127.0.0.1",
        port=9000,
        streamable_http_path="/here",
        sse_path="/events",
        message_path="/post",
        json_response=True,
        stateless_http=True,
    ),
)
def test_an_argument_of_http_is_kept_until_the_server_is_run(option: str, value: Any) -> None:
    assert Server("moved", **{option: value}).http_options == {option: value}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("http_app", {"path": "/here"}, id="http_app"),
        pytest.param("http_app", {"transport": "sse"}, id="http_app, sse"),
        pytest.param("http_app", {"stateless_http": True, "json_response": True}, id="http_app, options"),
        pytest.param("streamable_http_app", {}, id="streamable_http_app"),
        pytest.param("streamable_http_app", {"streamable_http_path": "/here"}, id="streamable_http_app, path"),
        pytest.param("sse_app", {}, id="sse_app"),
    ],
)
def test_an_application_is_made_by_the_names_of_the_others(name: str, arguments: dict[str, Any]) -> None:
    assert callable(getattr(Server("moved"), name)(**arguments).lifespan)


@pytest.mark.parametrize("transport", ["http", "streamable-http", "sse"])
def test_a_server_runs_by_the_names_of_the_others(transport: str) -> None:
    async def main() -> str:
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(Server("moved").run_async(transport, port=0, started=listening.set_result))
        async with Client(f"{await listening}/mcp") as client:
            info = client.server_info
        running.cancel()
        await asyncio.wait([running])
        return "" if info is None else info.name

    assert run_async(main()) == "moved"


@pytest.mark.filterwarnings("ignore::trunkline.compat.CompatibilityWarning")
@pytest.mark.parametrize(
    ("option", "value"),
    _rows(
        name="n",
        version="1",
        title="t",
        description="d",
        icons=[],
        tags={"a"},
        output_schema=None,
        annotations={"readOnlyHint": True},
        meta={"a": 1},
        app=None,
        task=False,
        timeout=3,
        auth=None,
        run_in_thread=False,
        structured_output=True,
        enabled=True,
        exclude_args=["times"],
        serializer=None,
    ),
)
def test_an_option_of_a_tool_is_accepted(option: str, value: Any) -> None:
    server = Server("moved")

    @server.tool(**{option: value})
    def greet(times: int = 1) -> str:
        return "hello" * times

    assert len(server.registry.tools) == 1


@pytest.mark.filterwarnings("ignore::trunkline.compat.CompatibilityWarning")
@pytest.mark.parametrize(
    ("option", "value"),
    _rows(
        name="n",
        version="1",
        title="t",
        description="d",
        icons=[],
        mime_type="text/plain",
        tags={"a"},
        annotations={"audience": ["user"]},
        meta={"a": 1},
        security=object(),
        enabled=True,
    ),
)
def test_an_option_of_a_resource_is_accepted(option: str, value: Any) -> None:
    server = Server("moved")

    @server.resource("note://one", **{option: value})
    def note() -> str:
        return "one"

    assert len(server.registry.resources) == 1


@pytest.mark.parametrize(
    ("option", "value"),
    _rows(
        sampling_handler=_answer,
        elicitation_handler=_answer,
        log_handler=_answer,
        progress_handler=_answer,
        message_handler=_answer,
        mode="legacy",
        roots=["/"],
        timeout=3,
        read_timeout_seconds=3,
        client_info=None,
        cache=True,
        log_level="info",
        logging_callback=_answer,
    ),
)
def test_an_option_of_a_client_is_accepted(option: str, value: Any) -> None:
    assert Client(Server("moved"), **{option: value}).state == "created"
