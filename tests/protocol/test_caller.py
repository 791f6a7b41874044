"""The caller: what a capability path means in a revision, and where the log level and the principal come from."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trunkline.protocol.caller import (
    MEMORY,
    STDIO,
    Caller,
    Origin,
    Principal,
    Session,
    owner_name,
    supports,
    usable_capabilities,
)
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES, REVISIONS, Revision


@pytest.mark.parametrize(
    ("declared", "path", "supported"),
    [
        pytest.param({}, "tools", False, id="nothing"),
        pytest.param({"tools": {}}, "tools", True, id="empty object"),
        pytest.param({"tools": None}, "tools", False, id="null"),
        pytest.param({"tools": False}, "tools", False, id="false"),
        pytest.param({"tools": {}}, "tools.listChanged", False, id="flag absent"),
        pytest.param({"tools": {"listChanged": False}}, "tools.listChanged", False, id="flag false"),
        pytest.param({"tools": {"listChanged": True}}, "tools.listChanged", True, id="flag true"),
        pytest.param({"tools": 5}, "tools.listChanged", False, id="not an object"),
        pytest.param({"elicitation": {}}, "elicitation", True, id="elicitation"),
        pytest.param({"elicitation": {}}, "elicitation.form", True, id="an empty elicitation means forms"),
        pytest.param({"elicitation": {}}, "elicitation.url", False, id="and no pages"),
        pytest.param({"elicitation": {"url": {}}}, "elicitation.form", False, id="pages alone are no forms"),
        pytest.param({"elicitation": {"form": {}}}, "elicitation.form", True, id="forms said aloud"),
        pytest.param({"elicitation": {"url": {}}}, "elicitation.url", True, id="pages"),
        pytest.param({"sampling": {}}, "sampling.form", False, id="form means nothing elsewhere"),
        pytest.param({"experimental": {"a": {"b": {}}}}, "experimental.a.b", True, id="three levels"),
    ],
)
def test_a_capability_is_supported_if_its_path_was_declared(
    declared: dict[str, Any], path: str, *, supported: bool
) -> None:
    caller = Caller(NEWEST, None, declared, MEMORY)
    assert (supports(declared, path), caller.supports(path)) == (supported, supported)


def test_a_stateless_caller_has_the_log_level_of_its_request() -> None:
    assert Caller(NEWEST, None, {}, STDIO, None, "error").log_level == "error"


def test_a_stateless_caller_without_a_log_level_gets_no_messages() -> None:
    assert Caller(NEWEST, None, {}, STDIO).log_level is None


def test_a_caller_of_a_session_has_the_current_log_level_of_the_session() -> None:
    session = Session(NEWEST_HANDSHAKE, None, {}, origin=STDIO)
    session.log_level = "critical"
    assert session.caller.log_level == "critical"


def test_the_principal_of_a_caller_is_the_one_its_message_came_with() -> None:
    principal = Principal(subject="ada", scopes=frozenset({"read"}))
    assert Caller(NEWEST, None, {}, Origin("http", principal)).principal is principal


# --- the owner of what is stored for a caller ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param((Principal(subject="a"), "192.0.2.1"), (Principal(subject="a"), None), True, id="any address"),
        pytest.param(
            (Principal(subject="a", client="x", scopes=frozenset({"s"})), None),
            (Principal(subject="a", client="y"), None),
            True,
            id="clients of one user",
        ),
        pytest.param((Principal(subject="a"), None), (Principal(subject="b"), None), False, id="users"),
        pytest.param((Principal(subject="a", issuer="i"), None), (Principal(subject="a"), None), False, id="issuers"),
        pytest.param(
            (Principal(subject="c", issuer="a\nb"), None),
            (Principal(subject="b\nc", issuer="a"), None),
            False,
            id="parts",
        ),
        pytest.param((Principal(subject="192.0.2.1"), None), (None, "192.0.2.1"), False, id="a name like an address"),
        pytest.param((None, "192.0.2.1"), (None, "192.0.2.2"), False, id="addresses"),
        pytest.param((None, "::ffff:192.0.2.1"), (None, "192.0.2.1"), True, id="mapped"),
        pytest.param((None, "2001:db8::1"), (None, "2001:db8::ffff:1"), True, id="one IPv6 network"),
        pytest.param((None, "2001:db8::1"), (None, "2001:db8:0:1::1"), False, id="two IPv6 networks"),
        pytest.param((None, "testclient"), (None, None), False, id="no address"),
        pytest.param((None, None), (None, None), True, id="local"),
    ],
)
def test_an_owner_is_a_user_or_a_network(
    one: tuple[Principal | None, str | None], other: tuple[Principal | None, str | None], *, same: bool
) -> None:
    assert (owner_name(*one) == owner_name(*other)) is same


# --- capabilities that a revision does not have ----------------------------------------------------------------------

ALL: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
    "extensions": {"x/y": {}},
    "z": 1,
}
NO_PAGES_AND_TOOLS = {**ALL, "elicitation": {"form": {}}, "sampling": {"context": {}}}
NO_ELICITATION = {name: value for name, value in NO_PAGES_AND_TOOLS.items() if name != "elicitation"}


@pytest.mark.parametrize(
    ("revision", "usable"),
    list(zip(REVISIONS, [NO_ELICITATION, NO_ELICITATION, NO_PAGES_AND_TOOLS, ALL, ALL], strict=True)),
    ids=REVISION_NAMES,
)
def test_a_session_has_the_capabilities_that_its_revision_has(revision: Revision, usable: dict[str, Any]) -> None:
    declared = copy.deepcopy(ALL)
    assert usable_capabilities(declared, revision) == usable
    assert Session(revision, None, declared, origin=STDIO).caller.capabilities == usable
    assert declared == ALL


@pytest.mark.parametrize(
    "declared", [{}, {"sampling": None}, {"sampling": 5}, {"sampling": ["tools"]}, {"sampling": {}}], ids=str
)
def test_capabilities_of_any_form_are_kept_if_no_revision_takes_them_away(declared: dict[str, Any]) -> None:
    assert [usable_capabilities(declared, revision) for revision in REVISIONS] == [declared] * len(REVISIONS)


def test_an_older_revision_has_forms_however_elicitation_was_declared() -> None:
    caller = Session(REVISIONS[2], None, {"elicitation": {"url": {}}}, origin=STDIO).caller
    assert (caller.supports("elicitation.form"), caller.supports("elicitation.url")) == (True, False)
