"""Registering: decorators, names, duplicates, removal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.talk import call, text
from trunkline import Server


def hello() -> str:
    """Say hello."""
    return "hello"


@pytest.mark.parametrize(
    ("register", "name"),
    [
        pytest.param(lambda decorator: decorator(hello), "hello", id="without parentheses"),
        pytest.param(lambda decorator: decorator()(hello), "hello", id="empty parentheses"),
        pytest.param(lambda decorator: decorator("greet")(hello), "greet", id="a name first"),
        pytest.param(lambda decorator: decorator(name="greet")(hello), "greet", id="a name by keyword"),
        pytest.param(lambda decorator: decorator(hello, name="greet"), "greet", id="function and options"),
    ],
)
def test_a_decorator_returns_the_function_and_registers_it(register: Any, name: str) -> None:
    server = Server("s")
    assert (register(server.tool), register(server.prompt), server.resource("x://y")(hello)) == (hello, hello, hello)
    assert (list(server.registry.tools), list(server.registry.prompts)) == ([name], [name])


def test_a_lambda_or_callable_object_needs_a_name() -> None:
    class Caller:
        def __call__(self) -> str:
            return "called"

    server = Server("s")
    with pytest.raises(TypeError, match="a prompt needs a name"):
        server.add_prompt(lambda: "x")
    with pytest.raises(TypeError, match="a tool needs a name"):
        server.add_tool(Caller())
    server.add_tool(Caller(), name="caller")
    assert text(call(server, "caller")) == "called"


def test_an_unusual_tool_name_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Server("s").add_tool(hello, name="say hello")
    assert "some clients reject the tool name 'say hello'" in caplog.text


def test_a_uri_without_a_scheme_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    for uri in ("note://one", "mailto:ada", "urn:isbn:1"):
        server.add_resource(uri, "text")
    server.add_resource("{+uri}", lambda uri: uri)
    assert not caplog.records
    server.add_resource("my notes", "text")
    assert "some clients reject the resource 'my notes'" in caplog.text


# --- duplicates ------------------------------------------------------------------------------------------------------


def test_a_name_taken_twice_is_an_error() -> None:
    server = Server("s")
    server.tool(hello)
    with pytest.raises(ValueError, match="tool 'hello' exists already"):
        server.tool(hello)


@pytest.mark.parametrize(
    ("rule", "said", "warnings"), [("warn", "second", 1), ("replace", "second", 0), ("ignore", "first", 0)]
)
def test_on_duplicate_decides_about_duplicates(
    rule: Any, said: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s", on_duplicate=rule)
    server.add_tool(lambda: "first", name="x")
    server.add_tool(lambda: "second", name="x")
    assert text(call(server, "x")) == said
    assert caplog.text.count("tool 'x' is registered again") == warnings


# --- removing --------------------------------------------------------------------------------------------------------


def test_registered_definitions_can_be_removed() -> None:
    server = Server("s")
    server.add_tool(hello)
    server.add_prompt(hello)
    server.add_resource("x://y", "text")
    server.add_resource("x://{a}", lambda a: a)
    server.remove_tool("hello")
    server.remove_prompt("hello")
    server.remove_resource("x://y")
    server.remove_resource("x://{a}")
    registry = server.registry
    assert [*registry.tools, *registry.prompts, *registry.resources, *registry.templates] == []


def test_removing_an_unknown_tool_is_an_error() -> None:
    with pytest.raises(KeyError, match="there is no tool 'nope'"):
        Server("s").remove_tool("nope")


# --- resources, completions, methods ---------------------------------------------------------------------------------


def test_a_resource_needs_its_uri() -> None:
    with pytest.raises(TypeError, match="a resource needs its URI"):
        Server("s").resource(hello)  # type: ignore[arg-type]


def test_a_completion_names_its_argument() -> None:
    with pytest.raises(TypeError, match="a completion needs a prompt or template and its argument"):
        Server("s").completion("x://{name}")


@pytest.mark.parametrize("name", ["tools/call", "initialize", "server/discover", "acme/x"])
def test_a_method_of_the_protocol_or_of_the_server_cannot_be_replaced(name: str) -> None:
    server = Server("s")
    server.method("acme/x")(hello)
    with pytest.raises(ValueError, match=f"method '{name}' exists already"):
        server.method(name)(hello)
