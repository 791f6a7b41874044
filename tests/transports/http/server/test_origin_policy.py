"""Which Host and Origin headers are accepted, which pages may read responses, and the parsing of media types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import ConfigError
from trunkline.transports.http.server.origin_policy import OriginDenied, OriginPolicy, accepts, is_json, media_type

LOCAL = b"localhost:8000"
PUBLIC = b"mcp.example.com"
Address = tuple[str, int | None] | None
#: Where a connection may have arrived; none of these changes how a name is judged that is not this address.
ADDRESSES: list[Address] = [None, ("127.0.0.1", 8000), ("0.0.0.0", 8000), ("::", 8000), ("/run/mcp.sock", None)]


def status(refusal: OriginDenied | None) -> int:
    """The status a refusal carries; 200 for what is let in."""
    return 200 if refusal is None else refusal.status


def host_status(host: bytes, *, hosts: Sequence[str] = (), server: Address = None) -> int:
    return status(OriginPolicy(hosts=hosts).check([host], [], server=server))


def origin_status(origin: bytes, *, host: bytes = LOCAL, origins: Sequence[str] = (), cors: Sequence[str] = ()) -> int:
    policy = OriginPolicy(hosts=["mcp.example.com"], origins=origins, cors=cors)
    return status(policy.check([host], [origin], server=("192.0.2.7", 8000)))


# --- Host ------------------------------------------------------------------------------------------------------------

LOOPBACK_HOSTS = [
    *(b"localhost", b"localhost:8000", b"LocalHost:8000", b"127.0.0.1", b"127.0.0.1:65535", b"127.8.9.10:1"),
    *(b"[::1]", b"[::1]:8000", b"[0:0:0:0:0:0:0:1]:8000"),
]

# Whole names of their own that only look like loopback, and addresses that are not loopback.
FOREIGN_NAMES = [
    *(b"evil.example", b"localhost.evil.com", b"127.0.0.1.nip.io", b"evil-localhost", b"localhost-evil"),
    *(b"app.localhost", b"xn--lcalhost-n7a", b"localh0st"),
    *(b"[::ffff:127.0.0.1]", b"[::127.0.0.1]", b"[::ffff:7f00:1]", b"[64:ff9b::7f00:1]", b"[::2]", b"[::]"),
    *(b"0.0.0.0", b"128.0.0.1", b"10.0.0.1", b"169.254.169.254"),
]

# Spellings that some resolver or browser would understand, and others that none should.
MALFORMED_NAMES = [
    # Dots, hyphens and lengths of labels.
    *(b"", b"localhost.", b"127.0.0.1.", b".localhost", b"local..host", b"-localhost", b"localhost-"),
    *(b"a" * 64, b".".join([b"a" * 49] * 6), b"a." * 30_000 + b"a"),
    # Addresses in hexadecimal, octal and decimal, and with too few or too many parts.
    *(b"0x7f.1", b"0x7f000001", b"0x7f.0.0.0x1", b"127.1", b"127.0.1", b"2130706433", b"017700000001"),
    *(b"0177.0.0.1", b"127.0.0.01", b"127.0.0.256", b"127.0.0.1.1", b"localhost.1"),
    # Ports.
    *(b"localhost:", b"localhost:0", b"localhost:080", b"localhost:65536", b"localhost:99999999999999"),
    *(b"localhost:+80", b"localhost:80a", b"localhost:80:80", b":80", "localhost:٨٠".encode()),
    # Other parts of a URL, and characters that no name has.
    *(b"localhost:80@evil.com", b"user@localhost", b"user:secret@localhost", b"localhost/", b"localhost?evil"),
    *(b"localhost#evil", b"localhost\\evil", b"localhost,evil.com", b"localhost evil.com", b" localhost"),
    *(b"localhost ", b"localhost\t", b"localhost\n", b"localhost\r\nX: y", b"localhost\0", b"localhost\0.evil.com"),
    *(b"%6cocalhost", b"localhost%2eevil", b"\xff\xfe", b"*", b"*.example.com"),
    # Letters, dots and digits that Unicode maps to those of ASCII.
    *("localho\u017ft".encode(), "\u24dbocalhost".encode(), "127\u30020\u30020\u30021".encode()),
    "\uff11\uff12\uff17.0.0.1".encode(),
    # Brackets.
    *(b"::1", b"[::1", b"::1]", b"[localhost]", b"[127.0.0.1]", b"[::1%lo]", b"[::1]evil.com", b"[:::1]", b"[]"),
    b"[v1.a]",
]


def test_a_loopback_host_is_accepted_wherever_the_connection_arrived() -> None:
    found = {(host, server): host_status(host, server=server) for host in LOOPBACK_HOSTS for server in ADDRESSES}
    assert {case: code for case, code in found.items() if code != 200} == {}


def test_a_foreign_host_is_refused_wherever_the_connection_arrived() -> None:
    hosts = [name + port for name in FOREIGN_NAMES for port in (b"", b":8000")]
    found = {(host, server): host_status(host, server=server) for host in hosts for server in ADDRESSES}
    assert {case: code for case, code in found.items() if code != 403} == {}


@pytest.mark.parametrize("hosts", [(), ("*",)], ids=["by default", "when any host is let in"])
def test_a_malformed_host_is_refused(hosts: tuple[str, ...]) -> None:
    found = {host: host_status(host, hosts=hosts) for host in MALFORMED_NAMES}
    assert {host: code for host, code in found.items() if code != 400} == {}


@pytest.mark.parametrize("hosts", [[], [LOCAL, LOCAL], [LOCAL, b"evil.example"]], ids=["none", "twice", "two"])
def test_a_request_without_exactly_one_host_is_refused(hosts: list[bytes]) -> None:
    assert [status(OriginPolicy(hosts=allowed).check(hosts, [])) for allowed in ([], ["*"])] == [400, 400]


@pytest.mark.parametrize(
    ("server", "host", "expected"),
    [
        pytest.param("192.0.2.7", b"192.0.2.7:8000", 200, id="by its address"),
        pytest.param("192.0.2.7", b"192.0.2.7:9000", 200, id="by a port mapped on the way"),
        pytest.param("192.0.2.7", b"192.0.2.8:8000", 403, id="by another address"),
        pytest.param("192.0.2.7", b"[::ffff:192.0.2.7]", 403, id="by its address mapped into IPv6"),
        pytest.param("::ffff:192.0.2.7", b"192.0.2.7:8000", 200, id="on a socket of both families"),
        pytest.param("2001:db8::7", b"[2001:DB8:0::7]:8000", 200, id="by its IPv6 address"),
        pytest.param("fe80::7%eth0", b"[fe80::7]:8000", 200, id="by its address on the link"),
        pytest.param("0.0.0.0", b"0.0.0.0:8000", 403, id="by what stands for all addresses"),
        pytest.param("::ffff:0.0.0.0", b"0.0.0.0", 403, id="by what stands for all addresses, mapped"),
        pytest.param("evil.example", b"evil.example", 403, id="at a name, which is no address"),
    ],
)
def test_a_host_header_with_the_address_of_the_connection_is_accepted(server: str, host: bytes, expected: int) -> None:
    assert host_status(host, server=(server, 8000)) == expected


@pytest.mark.parametrize(
    ("entry", "host", "expected"),
    [
        pytest.param("MCP.Example.com", b"mcp.example.COM:8443", 200, id="a name on any port in any case"),
        pytest.param("mcp.example.com:*", b"mcp.example.com:8443", 200, id="any port by star"),
        pytest.param("mcp.example.com:8443", b"mcp.example.com:8443", 200, id="a name and port"),
        pytest.param("mcp.example.com:8443", b"mcp.example.com:8444", 403, id="another port"),
        pytest.param("mcp.example.com:8443", b"mcp.example.com", 403, id="no port where one is listed"),
        pytest.param("mcp.example.com:443", b"mcp.example.com", 200, id="the port of https left out"),
        pytest.param("mcp.example.com:80", b"mcp.example.com", 200, id="the port of http left out"),
        pytest.param("mcp.example.com", b"evil.mcp.example.com", 403, id="a name below it"),
        pytest.param("mcp.example.com", b"example.com", 403, id="a name above it"),
        pytest.param("mcp.example.com", b"mcp-example.com", 403, id="a dot stands for itself"),
        pytest.param("mcp.example.com", LOCAL, 200, id="loopback besides"),
        pytest.param("my_server", b"my_server:8000", 200, id="an underscore"),
        pytest.param("[2001:db8::1]", b"[2001:db8:0:0::1]:1", 200, id="an IPv6 address"),
        pytest.param("*", b"evil.example:1", 200, id="any host"),
    ],
)
def test_a_listed_host_is_accepted(entry: str, host: bytes, expected: int) -> None:
    assert host_status(host, hosts=(entry,)) == expected


# --- Origin ----------------------------------------------------------------------------------------------------------


def test_a_request_without_origin_is_accepted() -> None:
    policy = OriginPolicy(hosts=["mcp.example.com"])
    hosts = (LOCAL, PUBLIC, b"192.0.2.7:8000")
    assert [policy.check([host], [], server=("192.0.2.7", 8000)) for host in hosts] == [None] * 3


@pytest.mark.parametrize(
    "origin",
    [
        *(b"http://localhost", b"https://localhost:3000", b"HTTP://LOCALHOST:3000", b"http://127.0.0.1:6274"),
        *(b"https://127.1.2.3", b"http://[::1]:3000"),
    ],
    ids=bytes.decode,
)
def test_a_loopback_page_may_call_a_loopback_server_and_no_public_one(origin: bytes) -> None:
    hosts = (LOCAL, b"127.0.0.1:8000", b"[::1]", PUBLIC, b"192.0.2.7:8000")
    assert [origin_status(origin, host=host) for host in hosts] == [200, 200, 200, 403, 403]


@pytest.mark.parametrize("host", [LOCAL, PUBLIC, b"192.0.2.7"], ids=bytes.decode)
def test_a_foreign_page_is_refused(host: bytes) -> None:
    pages = [scheme + name for name in FOREIGN_NAMES for scheme in (b"http://", b"https://")]
    assert [page for page in pages if origin_status(page, host=host) != 403] == []


NO_PAGES = [
    *(b"null", b"", b"*", b"localhost", b"//localhost", b"http:localhost", b"http:/localhost", b"http:///localhost"),
    *(b"ftp://localhost", b"file://", b"chrome-extension://localhost", b"javascript://localhost", b"xhttp://localhost"),
    *(b" http://localhost", b"http://localhost/", b"http://localhost/mcp"),
    *(b"http://localhost http://localhost", b"http://localhost, http://localhost"),
    *(b"http://" + name for name in MALFORMED_NAMES),
]


@pytest.mark.parametrize("cors", [(), ("*",)], ids=["by default", "when any page is let in"])
def test_an_origin_that_is_not_a_page_is_refused(cors: tuple[str, ...]) -> None:
    assert [origin for origin in NO_PAGES if origin_status(origin, cors=cors) != 403] == []


def test_several_origins_are_refused() -> None:
    assert status(OriginPolicy().check([LOCAL], [b"http://localhost", b"http://localhost"])) == 403


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        pytest.param(PUBLIC, b"https://MCP.example.com", 200, id="https without ports"),
        pytest.param(PUBLIC, b"http://mcp.example.com", 200, id="http without ports"),
        pytest.param(PUBLIC, b"https://mcp.example.com:443", 200, id="the default port written out"),
        pytest.param(b"mcp.example.com:443", b"https://mcp.example.com", 200, id="the default port in Host"),
        pytest.param(b"192.0.2.7:8000", b"http://192.0.2.7:8000", 200, id="the same address and port"),
        pytest.param(PUBLIC, b"https://mcp.example.com:8443", 403, id="a port where Host has none"),
        pytest.param(PUBLIC, b"http://mcp.example.com:443", 403, id="the default port of the other scheme"),
        pytest.param(b"mcp.example.com:8443", b"https://mcp.example.com", 403, id="no port where Host has one"),
        pytest.param(PUBLIC, b"https://evil.mcp.example.com", 403, id="a name below"),
        pytest.param(LOCAL, b"https://mcp.example.com", 403, id="our public name on a loopback Host"),
    ],
)
def test_a_page_of_the_server_itself_is_accepted(host: bytes, origin: bytes, expected: int) -> None:
    assert origin_status(origin, host=host) == expected


def test_only_a_listed_page_is_trusted_when_any_host_is_accepted() -> None:
    policy = OriginPolicy(hosts=["*"], origins=["http://app.example.com"])
    assert status(policy.check([b"evil.example"], [b"http://evil.example"])) == 403
    assert policy.check([b"any.example"], [b"http://app.example.com"]) is None


@pytest.mark.parametrize(
    ("entry", "origin", "expected"),
    [
        pytest.param("https://App.example.com", b"HTTPS://app.EXAMPLE.com", 200, id="in any case"),
        pytest.param("https://app.example.com:443", b"https://app.example.com", 200, id="default port listed"),
        pytest.param("https://app.example.com", b"https://app.example.com:443", 200, id="default port sent"),
        pytest.param("https://app.example.com", b"http://app.example.com", 403, id="another scheme"),
        pytest.param("https://app.example.com", b"https://app.example.com:8443", 403, id="another port"),
        pytest.param("https://app.example.com", b"https://x.app.example.com", 403, id="a name below"),
        pytest.param("http://localhost:3000", b"http://localhost:3000", 200, id="loopback, for a public server"),
        pytest.param("http://localhost:3000", b"http://localhost:3001", 403, id="loopback on another port"),
    ],
)
def test_a_listed_page_is_accepted(entry: str, origin: bytes, expected: int) -> None:
    lists: list[Mapping[str, list[str]]] = [{"origins": [entry]}, {"cors": [entry]}]
    assert [origin_status(origin, host=PUBLIC, **each) for each in lists] == [expected, expected]


def test_any_page_is_accepted_and_may_read_if_cors_origins_is_a_star() -> None:
    assert origin_status(b"https://any.example", cors=("*",)) == 200
    headers = dict(OriginPolicy(cors=["*"]).cors_headers(b"https://any.example"))
    assert headers[b"access-control-allow-origin"] == b"*"


# --- refusals and settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "origins", "setting"),
    [
        pytest.param(b"MCP.example.com:8443", [], 'allowed_hosts=["mcp.example.com"]', id="host"),
        pytest.param(LOCAL, [b"https://app.example.com"], 'allowed_origins=["https://app.example.com"]', id="page"),
    ],
)
def test_a_refusal_names_the_setting_that_allows_it(host: bytes, origins: list[bytes], setting: str) -> None:
    refusal = OriginPolicy().check([host], origins)
    assert refusal is not None
    assert setting in refusal.message


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_refusal_shows_only_printable_characters(host: bytes, origin: bytes) -> None:
    refusals = [OriginPolicy().check([host], []), OriginPolicy().check([LOCAL], [origin])]
    shown = "".join(refusal.message for refusal in refusals if refusal is not None)
    assert shown.isascii()
    assert shown.isprintable()


def test_a_refusal_shows_only_the_start_of_the_received_value() -> None:
    refusal = OriginPolicy().check([b"!" * 5000], [])
    assert refusal is not None
    assert refusal.message.count("!") == 80


@pytest.mark.parametrize(
    ("option", "entry"),
    [
        *[("hosts", entry) for entry in ("https://mcp.example.com", "mcp.example.com/mcp", "*.example.com", "")],
        *[("hosts", entry) for entry in ("mcp.example.com:", "mcp.example.com:80:*", "*:8000", "2001:db8::1")],
        *[("hosts", entry) for entry in ("mcp.example.com.", "mcp example.com", "müller.example")],
        *[("origins", entry) for entry in ("app.example.com", "https://app.example.com/", "https://*.example.com")],
        *[("origins", entry) for entry in ("null", "", "*")],
        ("cors", "app.example.com"),
    ],
)
def test_a_malformed_entry_is_a_config_error(option: str, entry: str) -> None:
    setting = {"hosts": "allowed_hosts", "origins": "allowed_origins", "cors": "cors_origins"}[option]
    lists: Mapping[str, list[str]] = {option: [entry]}
    with pytest.raises(ConfigError, match=f"{setting} has"):
        OriginPolicy(**lists)


def test_a_string_instead_of_a_list_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r'allowed_hosts=\["mcp.example.com"\]'):
        OriginPolicy(hosts="mcp.example.com")


# --- arbitrary input -------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    [LOCAL, b"localhost", b"127.0.0.1", b"[::1]", b"evil.example", b"\xff", b"@", b":", b".", b"80"]
)
HEADERS = st.lists(st.binary(max_size=60) | st.lists(NAMES, max_size=4).map(b"".join), max_size=2)
SERVERS = st.none() | st.tuples(st.text(max_size=20), st.none() | st.integers())


@given(HEADERS, HEADERS.map(lambda names: [b"http://" + name for name in names]) | HEADERS, SERVERS)
def test_arbitrary_headers_are_checked_without_an_exception(
    hosts: list[bytes], origins: list[bytes], server: Address
) -> None:
    policy = OriginPolicy(hosts=["a.example"], cors=["http://b.example"])
    assert status(policy.check(hosts, origins, server=server)) in (200, 400, 403)


@given(st.ip_addresses())
def test_only_loopback_is_accepted_of_all_addresses(address: IPv4Address | IPv6Address) -> None:
    host = f"[{address}]:80" if address.version == 6 else str(address)
    is_loopback = int(address) == 1 if address.version == 6 else address.is_loopback
    assert (host_status(host.encode()) == 200) is is_loopback


@given(st.ip_addresses())
def test_every_local_address_is_accepted_as_host(address: IPv4Address | IPv6Address) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    mapped = address.version == 6 and address.ipv4_mapped is not None
    expected = 403 if address.is_unspecified or mapped else 200
    assert host_status(host.encode(), server=(str(address), 80)) == expected


# --- CORS ------------------------------------------------------------------------------------------------------------

APP = b"https://app.example.com"


@pytest.mark.parametrize(
    ("lists", "origins"),
    [
        pytest.param({"origins": ["https://app.example.com"]}, [None, APP, b"null", b"*"], id="by default"),
        pytest.param(
            {"cors": ["https://app.example.com"]},
            [None, b"null", b"http://localhost", b"https://evil.example", b"http://app.example.com", APP + b"/"],
            id="when it is not listed",
        ),
    ],
)
def test_a_page_that_is_not_listed_may_not_read_responses(
    lists: Mapping[str, list[str]], origins: list[bytes | None]
) -> None:
    policy = OriginPolicy(**lists)
    assert [policy.cors_headers(origin) for origin in origins] == [[]] * len(origins)
    answers = [policy.preflight(origin, b"POST", requested_headers=b"content-type") for origin in origins]
    assert answers == [None] * len(origins)


def test_a_listed_page_may_read_and_sees_the_headers_it_needs() -> None:
    assert dict(OriginPolicy(cors=["https://app.example.com"]).cors_headers(APP)) == {
        b"access-control-allow-origin": APP,
        b"access-control-expose-headers": b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce, "
        b"Retry-After",
        b"vary": b"Origin",
    }


def test_a_preflight_names_the_allowed_headers_and_a_max_age() -> None:
    answer = OriginPolicy(cors=["https://app.example.com"]).preflight(APP, b"POST", requested_headers=b"content-type")
    assert answer is not None
    assert dict(answer) == {
        b"access-control-allow-origin": APP,
        b"access-control-allow-methods": b"POST, GET, DELETE, OPTIONS",
        b"access-control-allow-headers": b"content-type",
        b"access-control-max-age": b"600",
        b"vary": b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    }


ALL_HEADERS = (
    b"accept, authorization, baggage, content-type, dpop, last-event-id, mcp-method, mcp-name, mcp-protocol-version, "
    b"mcp-session-id, traceparent, tracestate"
)


@pytest.mark.parametrize(
    ("requested", "allowed"),
    [
        pytest.param(None, None, id="none"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(ALL_HEADERS.title(), ALL_HEADERS, id="ours in any case"),
        pytest.param(b"mcp-param-city, Mcp-Param-Unit", b"mcp-param-city, mcp-param-unit", id="mirrored parameters"),
        pytest.param(b"accept, x-evil, cookie, host, origin, *", b"accept", id="ours among others"),
        pytest.param(b"accept,accept", b"accept", id="one twice"),
        pytest.param(b"mcp-param-", None, id="a parameter without name"),
        pytest.param(b"mcp-param-a b", None, id="a parameter that is no token"),
        pytest.param(b"mcp-param-a\r\nset-cookie: x", None, id="a header in the header"),
        pytest.param(b"x," * 1000 + b"accept", None, id="beyond what is read"),
    ],
)
def test_a_preflight_allows_the_headers_of_the_protocol(requested: bytes | None, allowed: bytes | None) -> None:
    answer = OriginPolicy(cors=["https://app.example.com"]).preflight(APP, b"POST", requested_headers=requested)
    assert answer is not None
    assert dict(answer).get(b"access-control-allow-headers") == allowed


def test_a_preflight_is_answered_for_the_methods_of_the_endpoint_only() -> None:
    methods = [b"POST", b"GET", b"DELETE", b"OPTIONS", None, b"PUT", b"post", b"*", b""]
    policy = OriginPolicy(cors=["*"])
    answered = [policy.preflight(APP, method, requested_headers=None) is not None for method in methods]
    assert answered == [True] * 4 + [False] * 5


# --- media types -----------------------------------------------------------------------------------------------------

MEDIA_TYPES: Mapping[bytes | None, str | None] = {
    b"Application/JSON": "application/json",
    b" text/plain ; charset=utf-8": "text/plain",
    b'text/plain; a="b;c\\"d"; e=f': "text/plain",
    b"text/plain;": "text/plain",
    b"application/vnd.a+json": "application/vnd.a+json",
    **dict.fromkeys([None, b"", b"application", b"application/", b"/json", b"application / json"]),
    **dict.fromkeys([b"application/json, text/plain", b"application/json text/plain", b"application/json; charset"]),
    **dict.fromkeys([b'application/json; a="b', b"application/json\0", b"application/json\n"]),
    **dict.fromkeys([b"application/js\xc3\xb6n"]),
}


def test_the_media_type_is_parsed() -> None:
    assert {value: media_type(value) for value in MEDIA_TYPES} == MEDIA_TYPES


JSON_BODIES = [
    *(b"application/json", b"application/json; charset=utf-8", b"application/json ;charset=Utf-8"),
    *(b'APPLICATION/json; Charset="UTF-8"', b"application/json; profile=x"),
]
OTHER_BODIES = [
    *(b"application/json; charset=latin-1", b"application/json; charset=utf-8; charset=latin-1"),
    # What a page may send without a preflight.
    *(b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x"),
    *(b"text/plain; application/json", b"text/plain; a=application/json", b"application/json, text/plain"),
    *(b"text/json", b"application/problem+json", b"application/jsonl", b"", None),
]


def test_only_the_media_type_of_json_in_utf_8_is_json() -> None:
    assert [value for value in JSON_BODIES if not is_json(value)] == []
    assert [value for value in OTHER_BODIES if is_json(value)] == []


@pytest.mark.parametrize(
    ("value", "json", "stream"),
    [
        pytest.param(b"Application/JSON , TEXT/event-stream", True, True, id="both in any case"),
        pytest.param(b"text/event-stream,application/json", True, True, id="both the other way"),
        pytest.param(b"application/json", True, False, id="JSON"),
        pytest.param(b"text/event-stream; charset=utf-8;q=0.5", False, True, id="a stream with parameters"),
        pytest.param(None, True, True, id="absent"),
        pytest.param(b"  ", True, True, id="blank"),
        pytest.param(b"*/*", True, True, id="anything"),
        pytest.param(b"application/*", True, False, id="any application"),
        pytest.param(b"text/*", False, True, id="any text"),
        pytest.param(b"text/html, application/xhtml+xml", False, False, id="neither"),
        pytest.param(b"application/json;q=0.000, */*", False, True, id="JSON refused, anything else"),
        pytest.param(b"*/*, text/event-stream; Q=0", True, False, id="anything, a stream refused"),
        pytest.param(b"text/*;q=0, text/event-stream", False, True, id="the closer range decides for"),
        pytest.param(b"application/*, application/json;q=0.0", False, False, id="the closer range decides against"),
        pytest.param(b"application/json;q=0, application/json", True, False, id="refused and taken"),
        pytest.param(b"application/json;q=0.001", True, False, id="hardly taken"),
        pytest.param(b"*/json, application", False, False, id="no ranges"),
        pytest.param(b",,application/json,", True, False, id="empty entries"),
        pytest.param(b"x/y," * 1000 + b"*/*", False, False, id="beyond what is read"),
    ],
)
def test_an_accept_header_is_parsed(value: bytes | None, json: bool, stream: bool) -> None:
    assert accepts(value) == (json, stream)


MEDIA = st.lists(
    st.sampled_from(
        [b"application/json", b"text/*", b"*/*", b";", b" ", b"\t", b"q=0", b"charset=", b'"', b"\\", b",", b"x"]
    )
).map(b"".join)


@given(st.binary() | MEDIA)
def test_arbitrary_media_types_are_read_without_an_exception(value: bytes) -> None:
    assert len(accepts(value)) == 2
    assert is_json(value) <= (media_type(value) == "application/json")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"a/b" + b" ; " * 20_000 + b"!\0", id="empty parameters"),
        pytest.param(b"a/b" + b" " * 60_000 + b"\0", id="spaces"),
        pytest.param(b'a/b;c="' + b"\\x" * 30_000, id="a quote that does not close"),
        pytest.param(b"a/b" + b";c=d" * 15_000 + b"=", id="parameters"),
        pytest.param(b"a" * 60_000, id="a type without end"),
    ],
)
def test_the_longest_header_is_parsed_in_linear_time(value: bytes) -> None:
    assert (media_type(value), is_json(value), accepts(value)) == (None, False, (False, False))
