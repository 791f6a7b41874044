"""Registering: decorators, names, duplicates, removal."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.server.talk import STATELESS, call, reach, text
from trunkline import Server


def names(server: Server) -> list[str]:
    return list(server.registry.tools)


def hello() -> str:
    """Say hello."""
    return "hello"


def test_a_decorator_works_without_parentheses() -> None:
    server = Server("s")
    assert (server.tool(hello), server.prompt(hello)) == (hello, hello)
    assert (names(server), list(server.registry.prompts)) == (["hello"], ["hello"])


def test_a_decorator_works_with_empty_parentheses() -> None:
    server = Server("s")
    assert (server.tool()(hello), server.prompt()(hello)) == (hello, hello)
    assert (names(server), list(server.registry.prompts)) == (["hello"], ["hello"])


def test_a_name_may_be_the_first_argument() -> None:
    server = Server("s")
    server.tool("greet")(hello)
    server.prompt("welcome")(hello)
    assert (names(server), list(server.registry.prompts)) == (["greet"], ["welcome"])


def test_a_name_may_be_given_by_keyword() -> None:
    server = Server("s")
    server.tool(name="greet")(hello)
    assert names(server) == ["greet"]


def test_a_function_can_be_registered_with_options() -> None:
    server = Server("s")
    server.tool(hello, name="greet")
    assert names(server) == ["greet"]


@pytest.mark.parametrize("register", ["tool", "prompt"])
def test_a_lambda_needs_a_name(register: str) -> None:
    with pytest.raises(TypeError, match=f"a {register} needs a name"):
        getattr(Server("s"), register)(lambda: "x")


@pytest.mark.parametrize("register", ["tool", "prompt"])
def test_a_lambda_with_a_name_is_fine(register: str) -> None:
    server = Server("s")
    getattr(server, register)(name="x")(lambda: "x")
    assert [*server.registry.tools, *server.registry.prompts] == ["x"]


def test_a_callable_object_needs_a_name() -> None:
    class Caller:
        def __call__(self) -> str:
            return "called"

    server = Server("s")
    with pytest.raises(TypeError, match="a tool needs a name"):
        server.add_tool(Caller())
    server.add_tool(Caller(), name="caller")
    assert text(call(server, "caller")) == "called"


def test_a_bound_method_is_a_tool() -> None:
    class Counter:
        def count(self, step: int) -> int:
            return step + 1

    server = Server("s")
    server.add_tool(Counter().count)
    assert text(call(server, "count", step=2)) == "3"


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
    ("rule", "said"),
    [("warn", "second"), ("replace", "second"), ("ignore", "first")],
    ids=["warn", "replace", "ignore"],
)
def test_on_duplicate_decides_about_duplicates(rule: Any, said: str) -> None:
    server = Server("s", on_duplicate=rule)
    server.add_tool(lambda: "first", name="x")
    server.add_tool(lambda: "second", name="x")
    assert text(call(server, "x")) == said


@pytest.mark.parametrize(("rule", "records"), [("warn", 1), ("replace", 0), ("ignore", 0)])
def test_only_on_duplicate_warn_logs_a_warning(rule: Any, records: int, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s", on_duplicate=rule)
    server.add_prompt(hello)
    with caplog.at_level(logging.WARNING, "trunkline"):
        server.add_prompt(hello)
    assert caplog.text.count("prompt 'hello' is registered again") == records


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


async def test_a_removed_tool_is_unknown() -> None:
    server = Server("s")
    server.add_tool(hello)
    server.add_tool(hello, name="other")
    async with reach(server, STATELESS) as peer:
        server.remove_tool("hello")
        assert (await peer.error("tools/call", {"name": "hello"}))["code"] == -32602


# --- resources, completions, methods ---------------------------------------------------------------------------------


def test_a_resource_needs_its_uri() -> None:
    with pytest.raises(TypeError, match="a resource needs its URI"):
        Server("s").resource(hello)  # type: ignore[arg-type]


def test_a_uri_with_variables_makes_a_template() -> None:
    server = Server("s")
    server.resource("x://{name}")(lambda name: name)
    assert (list(server.registry.resources), list(server.registry.templates)) == ([], ["x://{name}"])


def test_the_resource_decorator_returns_the_function() -> None:
    assert Server("s").resource("x://y")(hello) is hello


def test_a_completion_names_its_argument() -> None:
    with pytest.raises(TypeError, match="a completion needs a prompt or template and its argument"):
        Server("s").completion("x://{name}")


def test_a_method_may_be_registered_once() -> None:
    server = Server("s")
    server.method("acme/x")(hello)
    with pytest.raises(ValueError, match="method 'acme/x' exists already"):
        server.method("acme/x")(hello)


@pytest.mark.parametrize("name", ["tools/call", "initialize", "server/discover"])
def test_a_method_of_the_protocol_cannot_be_replaced(name: str) -> None:
    with pytest.raises(ValueError, match=f"method '{name}' exists already"):
        Server("s").method(name)(hello)
