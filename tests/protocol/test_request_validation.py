"""Request validation as a table: a row for each check, with the error code it ends on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import trunkline.types as t
from trunkline.protocol.caller import STDIO, Origin, Principal, Session
from trunkline.protocol.jsonrpc import Request, decode, encode
from trunkline.protocol.methods import METHODS, Method
from trunkline.protocol.request_validation import (
    RejectedRequest,
    ServerProfile,
    ValidatedRequest,
    make_server_profile,
    validate_request,
)
from trunkline.protocol.revisions import (
    ALL_REVISIONS,
    HANDSHAKE_NAMES,
    REVISIONS,
    STATELESS_NAMES,
    Revision,
    find_revision,
)

OFFER = make_server_profile({})
NEWEST_FIRST = [revision.name for revision in reversed(REVISIONS)]
STATELESS_NAME = STATELESS_NAMES[-1]
VERSION, CAPABILITIES, INFO = t.META_PROTOCOL_VERSION, t.META_CLIENT_CAPABILITIES, t.META_CLIENT_INFO
LEVEL = t.META_LOG_LEVEL
META = {VERSION: STATELESS_NAME, CAPABILITIES: {}}
CALL = {"name": "add", "arguments": {}}
INITIALIZE = {"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
#: Params that each method accepts, as far as it needs any.
PARAMS: dict[str, dict[str, Any]] = {
    "initialize": {**INITIALIZE, "protocolVersion": HANDSHAKE_NAMES[-1]},
    "tools/call": CALL,
    "resources/read": {"uri": "a:b"},
    "resources/subscribe": {"uri": "a:b"},
    "resources/unsubscribe": {"uri": "a:b"},
    "prompts/get": {"name": "p"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
    "logging/setLevel": {"level": "info"},
    "subscriptions/listen": {"notifications": {}},
    "tasks/get": {"taskId": "x"},
    "tasks/result": {"taskId": "x"},
    "tasks/cancel": {"taskId": "x"},
    "tasks/update": {"taskId": "x", "inputResponses": {}},
    "skills/get": {"uri": "skill://a/SKILL.md"},
    "resources/directory/read": {"uri": "skill://a"},
}


def session_of(name: str) -> Session:
    """Create a session of a revision."""
    revision = find_revision(name)
    assert revision is not None
    return Session(revision, None, {"roots": {}}, origin=STDIO)


def asked(method: str, params: Any = None) -> Request:
    """Create a request as it is received."""
    incoming = decode(encode(Request(1, method, params)))
    assert isinstance(incoming, Request)
    return incoming


def admitted(
    method: str, params: Any = None, session: Session | None = None, offer: ServerProfile = OFFER
) -> ValidatedRequest:
    """Validate a request that must be accepted."""
    outcome = validate_request(asked(method, params), session, STDIO, offer)
    assert isinstance(outcome, ValidatedRequest), outcome
    return outcome


def rejected(
    method: str, params: Any = None, session: Session | None = None, offer: ServerProfile = OFFER
) -> RejectedRequest:
    """Validate a request that must be rejected."""
    outcome = validate_request(asked(method, params), session, STDIO, offer)
    assert isinstance(outcome, RejectedRequest), outcome
    return outcome


# --- the sheet -------------------------------------------------------------------------------------------------------

NONE = None
HAS = "session"


@pytest.mark.parametrize(
    ("session", "method", "params", "code"),
    [
        # 1. _meta names a revision: stateless, whatever was sent before on the same pipe.
        pytest.param(NONE, "tools/call", {**CALL, "_meta": META}, NONE, id="stateless"),
        pytest.param(HAS, "tools/call", {**CALL, "_meta": META}, NONE, id="stateless beside a session"),
        pytest.param(NONE, "server/discover", {"_meta": META}, NONE, id="discover"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, VERSION: "1999-01-01"}}, -32022, id="unknown revision"),
        pytest.param(HAS, "tools/list", {"_meta": {**META, VERSION: "1999-01-01"}}, -32022, id="unknown, with session"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, VERSION: ""}}, -32022, id="empty revision"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, VERSION: HANDSHAKE_NAMES[-1]}}, -32022, id="handshake"),
        pytest.param(NONE, "nope", {"_meta": {**META, VERSION: "1999-01-01"}}, -32022, id="unknown method too"),
        pytest.param(NONE, "tools/call", {"_meta": {VERSION: "1999-01-01"}}, -32022, id="unknown revision, bad params"),
        pytest.param(NONE, "tools/list", {"_meta": {VERSION: STATELESS_NAME}}, -32602, id="no capabilities"),
        pytest.param(HAS, "tools/list", {"_meta": {VERSION: STATELESS_NAME}}, -32602, id="none, with session"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, CAPABILITIES: 5}}, -32602, id="capabilities a number"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, CAPABILITIES: None}}, -32602, id="capabilities null"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, INFO: "me"}}, -32602, id="client info as text"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, LEVEL: "loud"}}, -32602, id="no such log level"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, VERSION: 5}}, -32602, id="revision a number"),
        pytest.param(HAS, "tools/list", {"_meta": {**META, VERSION: 5}}, -32602, id="revision a number, with session"),
        pytest.param(NONE, "tools/list", {"_meta": {**META, VERSION: None}}, -32602, id="revision null"),
        pytest.param(NONE, "tools/call", {"_meta": META}, -32602, id="stateless, bad params"),
        pytest.param(NONE, "ping", {"_meta": META}, -32601, id="stateless ping"),
        pytest.param(HAS, "ping", {"_meta": META}, -32601, id="stateless ping beside a session"),
        pytest.param(NONE, "initialize", {**PARAMS["initialize"], "_meta": META}, -32601, id="stateless initialize"),
        pytest.param(NONE, "initialize", {"_meta": META}, -32601, id="stateless initialize, bad params"),
        pytest.param(NONE, "nope", {"_meta": META}, -32601, id="stateless, unknown method"),
        # 2. initialize.
        pytest.param(NONE, "initialize", PARAMS["initialize"], NONE, id="initialize"),
        pytest.param(NONE, "initialize", NONE, -32602, id="initialize without params"),
        pytest.param(NONE, "initialize", {**INITIALIZE, "protocolVersion": 5}, -32602, id="initialize, bad params"),
        pytest.param(HAS, "initialize", PARAMS["initialize"], -32600, id="a second initialize"),
        # 3. A session exists.
        pytest.param(HAS, "ping", NONE, NONE, id="ping"),
        pytest.param(HAS, "tools/call", CALL, NONE, id="call"),
        pytest.param(HAS, "tools/call", {**CALL, "_meta": {"progressToken": 1}}, NONE, id="call with a token"),
        pytest.param(HAS, "tools/call", {**CALL, "_meta": None}, NONE, id="call with null _meta"),
        pytest.param(HAS, "tools/call", {"arguments": {}}, -32602, id="call without a name"),
        pytest.param(HAS, "tools/call", [1], -32602, id="params a list"),
        pytest.param(HAS, "tools/list", {"cursor": 5}, -32602, id="cursor a number"),
        pytest.param(HAS, "server/discover", NONE, -32601, id="discover in a session"),
        pytest.param(HAS, "nope", NONE, -32601, id="unknown method"),
        pytest.param(HAS, "nope", [1], -32601, id="unknown method, params a list"),
        pytest.param(HAS, "nope", {"_meta": 5}, -32601, id="unknown method, _meta a number"),
        pytest.param(HAS, "Tools/Call", CALL, -32601, id="names are not folded"),
        pytest.param(HAS, "notifications/initialized", NONE, -32601, id="a notification's name"),
        # 4. No session.
        pytest.param(NONE, "ping", NONE, NONE, id="ping without session"),
        pytest.param(NONE, "ping", {"_meta": 5}, -32602, id="ping without session, bad params"),
        pytest.param(NONE, "tools/list", NONE, -32602, id="list without session"),
        pytest.param(NONE, "tools/list", {"_meta": {"progressToken": 1}}, -32602, id="token alone"),
        pytest.param(NONE, "tools/call", {"name": 5}, -32602, id="call without session, bad params"),
        pytest.param(NONE, "server/discover", NONE, -32602, id="discover without _meta"),
        pytest.param(NONE, "nope", NONE, -32601, id="unknown method without session"),
        pytest.param(NONE, "sampling/createMessage", NONE, -32601, id="what only a client is asked"),
    ],
)  # fmt: skip
def test_each_rung_ends_on_its_code(session: str | None, method: str, params: Any, code: int | None) -> None:
    opened = None if session is None else session_of(HANDSHAKE_NAMES[-1])
    outcome = validate_request(asked(method, params), opened, STDIO, OFFER)
    assert getattr(outcome, "code", None) == code


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.name)
def test_a_method_is_admitted_in_exactly_the_revisions_that_have_it(revision: Revision) -> None:
    codes, expected = {}, {}
    for row in METHODS:
        if row.kind == "request":
            own = PARAMS.get(row.name, {})
            params = own if revision.handshake else {**own, "_meta": {**META, VERSION: revision.name}}
            session = session_of(revision.name) if revision.handshake and row.name != "initialize" else None
            outcome = validate_request(asked(row.name, params), session, STDIO, OFFER)
            codes[row.name] = getattr(outcome, "code", None)
            expected[row.name] = None if row.to_server is not None and row.to_server.covers(revision) else -32601
    assert codes == expected


# --- who calls -------------------------------------------------------------------------------------------------------


def test_a_stateless_caller_is_what_its_own_request_says() -> None:
    info = {"name": "c", "version": "1"}
    meta = {**META, CAPABILITIES: {"elicitation": {}, "odd": 1}, INFO: info, LEVEL: "error"}
    caller = admitted("tools/list", {"_meta": meta}, session_of(HANDSHAKE_NAMES[-1])).caller
    assert (caller.revision.name, caller.session, caller.log_level) == (STATELESS_NAME, None, "error")
    assert caller.capabilities == {"elicitation": {}, "odd": 1}
    assert caller.client_info == t.Implementation(name="c", version="1")


def test_a_stateless_caller_need_not_say_its_name() -> None:
    assert admitted("tools/list", {"_meta": META}).caller.client_info is None


def test_the_caller_of_a_session_is_the_sessions() -> None:
    session = session_of(HANDSHAKE_NAMES[0])
    assert admitted("tools/list", None, session).caller is session.caller


def test_the_origin_comes_with_the_message() -> None:
    origin = Origin("http", Principal(subject="ada"))
    outcome = validate_request(asked("tools/list", {"_meta": META}), None, origin, OFFER)
    assert isinstance(outcome, ValidatedRequest)
    assert outcome.caller.origin is origin


def test_params_are_decoded_to_the_type_of_the_method() -> None:
    params = admitted("tools/call", CALL, session_of(HANDSHAKE_NAMES[-1])).params
    assert isinstance(params, t.CallToolRequestParams)
    assert (params.name, bytes(params.arguments or b"")) == ("add", b"{}")


def test_a_ping_without_session_opens_none() -> None:
    caller = admitted("ping").caller
    assert caller.capabilities == {}
    assert caller.revision.handshake


# --- initialize ------------------------------------------------------------------------------------------------------


def initialize(version: str) -> dict[str, Any]:
    """Return the params of initialize."""
    return {**INITIALIZE, "capabilities": {"roots": {}}, "protocolVersion": version}


@pytest.mark.parametrize(
    ("wanted", "agreed"),
    [
        *[pytest.param(name, name, id=name) for name in HANDSHAKE_NAMES],
        pytest.param("1999-01-01", HANDSHAKE_NAMES[-1], id="unknown"),
        pytest.param("", HANDSHAKE_NAMES[-1], id="empty"),
        pytest.param(STATELESS_NAME, HANDSHAKE_NAMES[-1], id="stateless"),
    ],
)
def test_initialize_agrees_on_a_revision(wanted: str, agreed: str) -> None:
    session = admitted("initialize", initialize(wanted)).caller.session
    assert session is not None
    assert (session.revision.name, session.caller.capabilities) == (agreed, {"roots": {}})


def test_a_server_that_speaks_some_revisions_agrees_on_the_newest_of_them() -> None:
    offer = make_server_profile({}, HANDSHAKE_NAMES[:2])
    caller = admitted("initialize", initialize(HANDSHAKE_NAMES[-1]), offer=offer).caller
    assert caller.revision.name == HANDSHAKE_NAMES[1]


def test_a_server_without_handshake_revisions_names_those_it_speaks() -> None:
    wanted = HANDSHAKE_NAMES[-1]
    rejection = rejected("initialize", initialize(wanted), offer=make_server_profile({}, STATELESS_NAMES))
    assert (rejection.code, rejection.data) == (-32022, {"supported": [*STATELESS_NAMES], "requested": wanted})
    assert STATELESS_NAME in rejection.message


def test_a_server_without_stateless_revisions_rejects_them() -> None:
    rejection = rejected("tools/list", {"_meta": META}, offer=make_server_profile({}, HANDSHAKE_NAMES))
    assert (rejection.code, rejection.data["supported"]) == (-32022, [*reversed(HANDSHAKE_NAMES)])


# --- what the errors say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "nope"])
def test_an_unsupported_revision_lists_what_is_supported_newest_first(method: str) -> None:
    rejection = rejected(method, {"_meta": {VERSION: "1999-01-01"}})
    assert rejection.data == {"supported": NEWEST_FIRST, "requested": "1999-01-01"}


@pytest.mark.parametrize(
    ("loose", "right"),
    [("sampling/complete", "sampling/createMessage"), ("elicitation/request", "elicitation/create")],
)
@pytest.mark.parametrize("session", [None, session_of(HANDSHAKE_NAMES[-1])], ids=["no session", "session"])
def test_an_unprefixed_method_name_is_answered_with_the_right_one(
    session: Session | None, loose: str, right: str
) -> None:
    rejection = rejected(loose, None, session)
    assert (rejection.code, rejection.data) == (-32601, {"method": loose})
    assert right in rejection.message


@pytest.mark.parametrize(
    ("params", "session", "revision"),
    [
        pytest.param(None, None, None, id="no session"),
        pytest.param(None, session_of(HANDSHAKE_NAMES[1]), HANDSHAKE_NAMES[1], id="session"),
        pytest.param({"_meta": META}, None, STATELESS_NAME, id="stateless"),
        pytest.param({"_meta": META}, session_of(HANDSHAKE_NAMES[1]), STATELESS_NAME, id="stateless beside a session"),
    ],
)
def test_a_method_not_found_names_the_method_and_the_revision_it_was_looked_for_in(
    params: Any, session: Session | None, revision: str | None
) -> None:
    where = "" if revision is None else f" in revision {revision}"
    assert rejected("nope", params, session) == RejectedRequest(
        -32601, f"Method not found{where}: nope", {"method": "nope"}
    )


@pytest.mark.parametrize("params", [None, {"cursor": 5}], ids=["readable", "unreadable"])
def test_without_a_session_the_error_names_what_is_missing(params: Any) -> None:
    message = rejected("tools/list", params).message
    assert "_meta" in message
    assert "initialize" in message


def test_an_incomplete_meta_is_rejected_with_the_missing_key() -> None:
    assert CAPABILITIES in rejected("tools/list", {"_meta": {VERSION: STATELESS_NAME}}).message


@pytest.mark.parametrize(
    "raw", [pytest.param(b'{"cursor":1e999}', id="1e999"), pytest.param(b'{"cursor":%b}' % (b"9" * 5000), id="digits")]
)
def test_a_number_out_of_range_is_rejected_with_an_answer(raw: bytes) -> None:
    outcome = validate_request(
        Request(1, "tools/list", msgspec.Raw(raw)), session_of(HANDSHAKE_NAMES[-1]), STDIO, OFFER
    )
    assert getattr(outcome, "code", None) == -32602


def test_params_that_are_not_json_are_a_parse_error() -> None:
    # A link that does not read strictly could deliver such bytes.
    outcome = validate_request(Request(1, "tools/list", msgspec.Raw(b'{"cursor":"\xff"}')), None, STDIO, OFFER)
    assert getattr(outcome, "code", None) == -32700


# --- a server's own methods ------------------------------------------------------------------------------------------

OWN = make_server_profile({"x/own": Method(name="x/own", kind="request", to_server=ALL_REVISIONS)})


def test_a_custom_method_is_admitted_in_every_revision_and_unknown_elsewhere() -> None:
    assert {admitted("x/own", {"any": 1}, session_of(name), OWN).row.name for name in HANDSHAKE_NAMES} == {"x/own"}
    assert admitted("x/own", {"_meta": META}, None, OWN).row.name == "x/own"
    assert rejected("x/own", {"_meta": META}).code == -32601


# --- headers ---------------------------------------------------------------------------------------------------------

SAID, METHOD, NAME = "mcp-protocol-version", "mcp-method", "mcp-name"
UNKNOWN = "1999-01-01"
HANDSHAKE = HANDSHAKE_NAMES[-1]
RIGHT = {SAID: STATELESS_NAME, METHOD: "tools/call", NAME: "add"}
MISMATCH = -32020


@pytest.mark.parametrize(
    ("method", "params", "headers", "code"),
    [
        pytest.param("tools/call", {**CALL, "_meta": META}, RIGHT, NONE, id="all agree"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {}, MISMATCH, id="none at all"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, SAID: UNKNOWN}, MISMATCH, id="another revision"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, SAID: HANDSHAKE}, MISMATCH, id="handshake"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, METHOD: "tools/list"}, MISMATCH, id="method"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, NAME: "sub"}, MISMATCH, id="name"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, METHOD: ""}, MISMATCH, id="empty method"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {SAID: STATELESS_NAME, METHOD: "tools/call"}, MISMATCH,
                     id="name missing"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, NAME: " add "}, NONE, id="padded name"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, NAME: "=?base64?YWRk?="}, NONE, id="encoded"),
        pytest.param("tools/call", {**CALL, "_meta": META}, {**RIGHT, NAME: "=?base64?!?="}, MISMATCH, id="no Base64"),
        pytest.param("tools/list", {"_meta": META}, {SAID: STATELESS_NAME, METHOD: "tools/list"}, NONE, id="no name"),
        # A task may be left unnamed, and not be misnamed.
        pytest.param("tasks/get", {"taskId": "t1", "_meta": META}, {SAID: STATELESS_NAME, METHOD: "tasks/get"}, NONE,
                     id="task not named"),
        pytest.param("tasks/get", {"taskId": "t1", "_meta": META},
                     {SAID: STATELESS_NAME, METHOD: "tasks/get", NAME: "t2"}, MISMATCH, id="another task"),
        # Errors about the revision come before other errors.
        pytest.param("tools/list", {"_meta": {**META, VERSION: UNKNOWN}}, {SAID: UNKNOWN}, -32022, id="unknown"),
        pytest.param("tools/list", {"_meta": {**META, VERSION: HANDSHAKE}}, {SAID: HANDSHAKE}, -32022, id="old"),
        pytest.param("tools/list", {"_meta": {VERSION: STATELESS_NAME}}, {SAID: STATELESS_NAME, METHOD: "tools/list"},
                     -32602, id="no capabilities"),
        pytest.param("ping", {"_meta": META}, {SAID: STATELESS_NAME, METHOD: "ping"}, -32601, id="method of sessions"),
        # The header names a revision, the body none.
        pytest.param("tools/list", NONE, {SAID: STATELESS_NAME}, -32602, id="header alone"),
        pytest.param("tools/list", NONE, {SAID: UNKNOWN}, -32022, id="unknown header alone"),
        pytest.param("initialize", PARAMS["initialize"], {SAID: UNKNOWN}, -32022, id="initialize, unknown header"),
        pytest.param("initialize", PARAMS["initialize"], {SAID: STATELESS_NAME}, -32602, id="stateless initialize"),
        pytest.param("initialize", PARAMS["initialize"], {SAID: HANDSHAKE}, NONE, id="initialize, handshake header"),
        pytest.param("initialize", PARAMS["initialize"], {}, NONE, id="initialize, no header"),
        # Unknown methods.
        pytest.param("nope", {"_meta": META}, {SAID: STATELESS_NAME, METHOD: "nope"}, -32601, id="unknown method"),
        pytest.param("nope", {"_meta": META}, {}, MISMATCH, id="unknown method, no header"),
        pytest.param("nope", NONE, {SAID: UNKNOWN}, -32022, id="unknown method and header"),
        pytest.param("nope", NONE, {SAID: STATELESS_NAME}, -32602, id="unknown method, header alone"),
        pytest.param("nope", NONE, {}, -32601, id="unknown method, nothing said"),
        # Params that cannot be decoded.
        pytest.param("tools/call", {"name": 5, "_meta": META}, {SAID: HANDSHAKE}, MISMATCH, id="unreadable, other"),
        pytest.param("tools/call", {"name": 5, "_meta": META}, RIGHT, -32602, id="unreadable"),
    ],
)  # fmt: skip
def test_headers_are_judged_with_the_body(method: str, params: Any, headers: dict[str, str], code: int | None) -> None:
    outcome = validate_request(asked(method, params), None, Origin("http", None, headers), OFFER)
    assert getattr(outcome, "code", None) == code


def test_a_header_that_differs_is_named_with_both_values() -> None:
    origin = Origin("http", None, {**RIGHT, NAME: "sub"})
    outcome = validate_request(asked("tools/call", {**CALL, "_meta": META}), None, origin, OFFER)
    assert isinstance(outcome, RejectedRequest)
    assert outcome.message == 'Header mismatch: Mcp-Name header says "sub" but the body calls "add".'


def test_a_session_is_judged_without_headers_of_the_message() -> None:
    session = session_of(HANDSHAKE)
    outcome = validate_request(asked("tools/call", CALL), session, Origin("http", None, {METHOD: "nonsense"}), OFFER)
    assert isinstance(outcome, ValidatedRequest)
