"""Which Host and Origin headers are accepted, which pages may read responses, and the parsing of media types."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import ConfigError
from trunkline.transports.http.server.origin_policy import OriginDenied, OriginPolicy, accepts, is_json, media_type

LOCAL = b"localhost:8000"
PUBLIC = b"mcp.example.com"


def status(refusal: OriginDenied | None) -> int:
    """The status a refusal carries; 200 for what is let in."""
    return 200 if refusal is None else refusal.status


def host_status(host: bytes, *, hosts: tuple[str, ...] = (), server: tuple[str, int | None] | None = None) -> int:
    return status(OriginPolicy(hosts=hosts).check([host], [], server=server))


def origin_status(
    origin: bytes, *, host: bytes = LOCAL, origins: tuple[str, ...] = (), cors: tuple[str, ...] = ()
) -> int:
    policy = OriginPolicy(hosts=["mcp.example.com"], origins=origins, cors=cors)
    return status(policy.check([host], [origin], server=("192.0.2.7", 8000)))


# --- Host ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"localhost:8000",
        b"LocalHost:8000",
        b"127.0.0.1",
        b"127.0.0.1:65535",
        b"127.8.9.10:1",
        b"[::1]",
        b"[::1]:8000",
        b"[0:0:0:0:0:0:0:1]:8000",
    ],
    ids=bytes.decode,
)
@pytest.mark.parametrize("server", [None, ("127.0.0.1", 8000), ("192.0.2.7", 8000), ("/run/mcp.sock", None)], ids=str)
def test_a_loopback_host_is_accepted_wherever_the_connection_arrived(
    host: bytes, server: tuple[str, int | None] | None
) -> None:
    assert host_status(host, server=server) == 200


# Names that only look like loopback, and are whole names of their own.
FOREIGN_NAMES = [
    pytest.param(b"evil.example", id="a foreign name"),
    pytest.param(b"localhost.evil.com", id="localhost as a label of another name"),
    pytest.param(b"127.0.0.1.nip.io", id="a loopback address as labels of another name"),
    pytest.param(b"evil-localhost", id="localhost at the end of a name"),
    pytest.param(b"localhost-evil", id="localhost at the start of a name"),
    pytest.param(b"app.localhost", id="a name below localhost"),
    pytest.param(b"xn--lcalhost-n7a", id="punycode"),
    pytest.param(b"localh0st", id="a zero for an o"),
    pytest.param(b"[::ffff:127.0.0.1]", id="loopback mapped into IPv6"),
    pytest.param(b"[::127.0.0.1]", id="loopback embedded in IPv6"),
    pytest.param(b"[::ffff:7f00:1]", id="loopback mapped into IPv6 in hexadecimal"),
    pytest.param(b"[64:ff9b::7f00:1]", id="loopback translated into IPv6"),
    pytest.param(b"[::2]", id="the address after loopback"),
    pytest.param(b"[::]", id="all IPv6 addresses"),
    pytest.param(b"0.0.0.0", id="all IPv4 addresses"),
    pytest.param(b"128.0.0.1", id="the network after loopback"),
    pytest.param(b"10.0.0.1", id="a private address"),
    pytest.param(b"169.254.169.254", id="a metadata address"),
]

# Spellings that some resolver or browser would understand, and others that none should.
MALFORMED_NAMES = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"localhost.", id="a trailing dot"),
    pytest.param(b"127.0.0.1.", id="a trailing dot on an address"),
    pytest.param(b".localhost", id="a leading dot"),
    pytest.param(b"local..host", id="an empty label"),
    pytest.param(b"-localhost", id="a leading hyphen"),
    pytest.param(b"localhost-", id="a trailing hyphen"),
    pytest.param(b"0x7f.1", id="a hexadecimal address of two parts"),
    pytest.param(b"0x7f000001", id="a hexadecimal address"),
    pytest.param(b"0x7f.0.0.0x1", id="hexadecimal parts"),
    pytest.param(b"127.1", id="an address of two parts"),
    pytest.param(b"127.0.1", id="an address of three parts"),
    pytest.param(b"2130706433", id="a decimal address"),
    pytest.param(b"017700000001", id="an octal address"),
    pytest.param(b"0177.0.0.1", id="octal parts"),
    pytest.param(b"127.0.0.01", id="a leading zero"),
    pytest.param(b"127.0.0.256", id="a part too large"),
    pytest.param(b"127.0.0.1.1", id="an address of five parts"),
    pytest.param(b"localhost.1", id="a name that ends in a number"),
    pytest.param(b"localhost:", id="an empty port"),
    pytest.param(b"localhost:0", id="port zero"),
    pytest.param(b"localhost:080", id="a port with a leading zero"),
    pytest.param(b"localhost:65536", id="a port too large"),
    pytest.param(b"localhost:99999999999999", id="a port far too large"),
    pytest.param(b"localhost:+80", id="a port with a sign"),
    pytest.param(b"localhost:80a", id="a port with a letter"),
    pytest.param(b"localhost:80:80", id="two ports"),
    pytest.param(b":80", id="a port alone"),
    pytest.param("localhost:٨٠".encode(), id="a port in digits of another script"),
    pytest.param(b"localhost:80@evil.com", id="userinfo that looks like a host"),
    pytest.param(b"user@localhost", id="userinfo"),
    pytest.param(b"user:secret@localhost", id="userinfo with a password"),
    pytest.param(b"localhost/", id="a path"),
    pytest.param(b"localhost?evil", id="a query"),
    pytest.param(b"localhost#evil", id="a fragment"),
    pytest.param(b"localhost\\evil", id="a backslash"),
    pytest.param(b"localhost,evil.com", id="two names with a comma"),
    pytest.param(b"localhost evil.com", id="two names with a space"),
    pytest.param(b" localhost", id="a leading space"),
    pytest.param(b"localhost ", id="a trailing space"),
    pytest.param(b"localhost\t", id="a tab"),
    pytest.param(b"localhost\n", id="a newline"),
    pytest.param(b"localhost\r\nX: y", id="a header in the header"),
    pytest.param(b"localhost\0", id="NUL at the end"),
    pytest.param(b"localhost\0.evil.com", id="NUL in the middle"),
    pytest.param(b"%6cocalhost", id="a letter percent-encoded"),
    pytest.param(b"localhost%2eevil", id="a dot percent-encoded"),
    pytest.param("localho\u017ft".encode(), id="a letter that folds to s"),
    pytest.param("\u24dbocalhost".encode(), id="a letter that Unicode maps to l"),
    pytest.param("127\u30020\u30020\u30021".encode(), id="dots of another script"),
    pytest.param("\uff11\uff12\uff17.0.0.1".encode(), id="digits of another width"),
    pytest.param(b"\xff\xfe", id="no UTF-8"),
    pytest.param(b"*", id="a star"),
    pytest.param(b"*.example.com", id="a pattern"),
    pytest.param(b"::1", id="IPv6 without brackets"),
    pytest.param(b"[::1", id="a bracket that does not close"),
    pytest.param(b"::1]", id="a bracket that does not open"),
    pytest.param(b"[localhost]", id="a name in brackets"),
    pytest.param(b"[127.0.0.1]", id="IPv4 in brackets"),
    pytest.param(b"[::1%lo]", id="an IPv6 zone"),
    pytest.param(b"[::1]evil.com", id="a name after the brackets"),
    pytest.param(b"[:::1]", id="IPv6 with too many colons"),
    pytest.param(b"[]", id="empty brackets"),
    pytest.param(b"[v1.a]", id="an address of a future version"),
    pytest.param(b"a" * 64, id="a label too long"),
    pytest.param(b".".join([b"a" * 49] * 6), id="a name too long"),
    pytest.param(b"a." * 30_000 + b"a", id="a name far too long"),
]


@pytest.mark.parametrize("host", FOREIGN_NAMES)
@pytest.mark.parametrize("server", [None, ("127.0.0.1", 8000), ("0.0.0.0", 8000), ("::", 8000)], ids=str)
def test_a_foreign_host_is_refused(host: bytes, server: tuple[str, int | None] | None) -> None:
    assert host_status(host, server=server) == 403


@pytest.mark.parametrize("host", FOREIGN_NAMES)
def test_a_foreign_host_is_refused_with_a_port(host: bytes) -> None:
    assert host_status(host + b":8000") == 403


@pytest.mark.parametrize("host", MALFORMED_NAMES)
@pytest.mark.parametrize("hosts", [(), ("*",)], ids=["by default", "when any host is let in"])
def test_a_malformed_host_is_refused(host: bytes, hosts: tuple[str, ...]) -> None:
    assert host_status(host, hosts=hosts) == 400


@pytest.mark.parametrize("hosts", [[], [LOCAL, LOCAL], [LOCAL, b"evil.example"]], ids=["none", "twice", "two"])
@pytest.mark.parametrize("allowed", [[], ["*"]], ids=["by default", "when any host is let in"])
def test_a_request_without_exactly_one_host_is_refused(hosts: list[bytes], allowed: list[str]) -> None:
    assert status(OriginPolicy(hosts=allowed).check(hosts, [])) == 400


@pytest.mark.parametrize(
    ("server", "host", "expected"),
    [
        pytest.param("192.0.2.7", b"192.0.2.7:8000", 200, id="by its address"),
        pytest.param("192.0.2.7", b"192.0.2.7", 200, id="by its address without a port"),
        pytest.param("192.0.2.7", b"192.0.2.7:9000", 200, id="by a port mapped on the way"),
        pytest.param("192.0.2.7", b"192.0.2.8:8000", 403, id="by another address"),
        pytest.param("192.0.2.7", b"[::ffff:192.0.2.7]", 403, id="by its address mapped into IPv6"),
        pytest.param("::ffff:192.0.2.7", b"192.0.2.7:8000", 200, id="on a socket of both families"),
        pytest.param("2001:db8::7", b"[2001:DB8:0::7]:8000", 200, id="by its IPv6 address"),
        pytest.param("fe80::7%eth0", b"[fe80::7]:8000", 200, id="by its address on the link"),
        pytest.param("2001:db8::7", b"[2001:db8::8]", 403, id="by another IPv6 address"),
        pytest.param("0.0.0.0", b"0.0.0.0:8000", 403, id="by what stands for all addresses"),
        pytest.param("::", b"[::]:8000", 403, id="by what stands for all IPv6 addresses"),
        pytest.param("::ffff:0.0.0.0", b"0.0.0.0", 403, id="by what stands for all addresses, mapped"),
        pytest.param("evil.example", b"evil.example", 403, id="at a name, which is no address"),
    ],
)
def test_a_host_header_with_the_address_of_the_connection_is_accepted(server: str, host: bytes, expected: int) -> None:
    assert host_status(host, server=(server, 8000)) == expected


@pytest.mark.parametrize(
    ("entry", "host", "expected"),
    [
        pytest.param("mcp.example.com", b"mcp.example.com", 200, id="a name"),
        pytest.param("mcp.example.com", b"MCP.example.COM:8443", 200, id="a name on any port in any case"),
        pytest.param("MCP.Example.com", b"mcp.example.com", 200, id="an entry in any case"),
        pytest.param("mcp.example.com:*", b"mcp.example.com:8443", 200, id="any port by star"),
        pytest.param("mcp.example.com:8443", b"mcp.example.com:8443", 200, id="a name and port"),
        pytest.param("mcp.example.com:8443", b"mcp.example.com:8444", 403, id="another port"),
        pytest.param("mcp.example.com:8443", b"mcp.example.com", 403, id="no port where one is listed"),
        pytest.param("mcp.example.com:443", b"mcp.example.com", 200, id="the port of https left out"),
        pytest.param("mcp.example.com:80", b"mcp.example.com", 200, id="the port of http left out"),
        pytest.param("mcp.example.com", b"evil.mcp.example.com", 403, id="a name below it"),
        pytest.param("mcp.example.com", b"example.com", 403, id="a name above it"),
        pytest.param("mcp.example.com", b"mcp.example.com.evil.org", 403, id="its name as labels of another"),
        pytest.param("mcp.example.com", b"mcp-example.com", 403, id="a dot stands for itself"),
        pytest.param("my_server", b"my_server:8000", 200, id="an underscore"),
        pytest.param("10.0.0.1", b"10.0.0.1:8000", 200, id="an address"),
        pytest.param("[2001:db8::1]", b"[2001:db8:0:0::1]:1", 200, id="an IPv6 address"),
        pytest.param("*", b"evil.example:1", 200, id="any host"),
    ],
)
def test_a_listed_host_is_accepted(entry: str, host: bytes, expected: int) -> None:
    assert host_status(host, hosts=(entry,)) == expected


def test_loopback_is_accepted_besides_listed_hosts() -> None:
    assert host_status(LOCAL, hosts=("mcp.example.com",)) == 200


def test_the_refusal_of_a_host_names_the_setting_that_allows_it() -> None:
    refusal = OriginPolicy().check([b"MCP.example.com:8443"], [])
    assert refusal is not None
    assert 'allowed_hosts=["mcp.example.com"]' in refusal.message


# --- Origin ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [LOCAL, PUBLIC, b"192.0.2.7:8000"], ids=bytes.decode)
def test_a_request_without_origin_is_accepted(host: bytes) -> None:
    policy = OriginPolicy(hosts=["mcp.example.com"])
    assert policy.check([host], [], server=("192.0.2.7", 8000)) is None


@pytest.mark.parametrize(
    "origin",
    [
        b"http://localhost",
        b"http://localhost:8000",
        b"https://localhost:3000",
        b"HTTP://LOCALHOST:3000",
        b"http://127.0.0.1:6274",
        b"https://127.1.2.3",
        b"http://[::1]:3000",
    ],
    ids=bytes.decode,
)
@pytest.mark.parametrize("host", [LOCAL, b"127.0.0.1:8000", b"[::1]"], ids=bytes.decode)
def test_a_loopback_page_may_call_a_loopback_server(origin: bytes, host: bytes) -> None:
    assert origin_status(origin, host=host) == 200


@pytest.mark.parametrize("host", [PUBLIC, b"mcp.example.com:8000", b"192.0.2.7:8000"], ids=bytes.decode)
def test_a_loopback_page_may_not_call_a_public_server(host: bytes) -> None:
    assert origin_status(b"http://localhost:8000", host=host) == 403


@pytest.mark.parametrize("name", FOREIGN_NAMES)
@pytest.mark.parametrize("scheme", [b"http://", b"https://"], ids=["http", "https"])
@pytest.mark.parametrize("host", [LOCAL, PUBLIC, b"192.0.2.7"], ids=bytes.decode)
def test_a_foreign_page_is_refused(name: bytes, scheme: bytes, host: bytes) -> None:
    assert origin_status(scheme + name, host=host) == 403


@pytest.mark.parametrize("name", MALFORMED_NAMES)
@pytest.mark.parametrize("cors", [(), ("*",)], ids=["by default", "when any page is let in"])
def test_a_malformed_origin_is_refused(name: bytes, cors: tuple[str, ...]) -> None:
    assert origin_status(b"http://" + name, cors=cors) == 403


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param(b"null", id="null"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"*", id="a star"),
        pytest.param(b"localhost", id="no scheme"),
        pytest.param(b"//localhost", id="an empty scheme"),
        pytest.param(b"http:localhost", id="no slashes"),
        pytest.param(b"http:/localhost", id="one slash"),
        pytest.param(b"http:///localhost", id="three slashes"),
        pytest.param(b"ftp://localhost", id="another scheme"),
        pytest.param(b"file://", id="a file"),
        pytest.param(b"chrome-extension://localhost", id="an extension"),
        pytest.param(b"javascript://localhost", id="a script"),
        pytest.param(b"xhttp://localhost", id="a scheme that ends in http"),
        pytest.param(b" http://localhost", id="a leading space"),
        pytest.param(b"http://localhost/", id="a final slash"),
        pytest.param(b"http://localhost/mcp", id="a path"),
        pytest.param(b"http://localhost http://localhost", id="two origins"),
        pytest.param(b"http://localhost, http://localhost", id="two origins with a comma"),
    ],
)
@pytest.mark.parametrize("cors", [(), ("*",)], ids=["by default", "when any page is let in"])
def test_an_origin_that_is_not_a_page_is_refused(origin: bytes, cors: tuple[str, ...]) -> None:
    assert origin_status(origin, cors=cors) == 403


def test_several_origins_are_refused() -> None:
    assert status(OriginPolicy().check([LOCAL], [b"http://localhost", b"http://localhost"])) == 403


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        pytest.param(PUBLIC, b"https://mcp.example.com", 200, id="https without ports"),
        pytest.param(PUBLIC, b"http://mcp.example.com", 200, id="http without ports"),
        pytest.param(PUBLIC, b"https://MCP.example.com", 200, id="another case"),
        pytest.param(PUBLIC, b"https://mcp.example.com:443", 200, id="the default port written out"),
        pytest.param(b"mcp.example.com:443", b"https://mcp.example.com", 200, id="the default port in Host"),
        pytest.param(b"mcp.example.com:8443", b"https://mcp.example.com:8443", 200, id="the same port"),
        pytest.param(b"192.0.2.7:8000", b"http://192.0.2.7:8000", 200, id="the same address"),
        pytest.param(PUBLIC, b"https://mcp.example.com:8443", 403, id="a port where Host has none"),
        pytest.param(PUBLIC, b"http://mcp.example.com:443", 403, id="the default port of the other scheme"),
        pytest.param(b"mcp.example.com:8443", b"https://mcp.example.com", 403, id="no port where Host has one"),
        pytest.param(b"mcp.example.com:8443", b"https://mcp.example.com:8444", 403, id="another port"),
        pytest.param(PUBLIC, b"https://evil.mcp.example.com", 403, id="a name below"),
        pytest.param(PUBLIC, b"https://example.com", 403, id="a name above"),
        pytest.param(b"192.0.2.7:8000", b"http://192.0.2.7:3000", 403, id="another port of the address"),
        pytest.param(LOCAL, b"https://mcp.example.com", 403, id="our public name on a loopback Host"),
    ],
)
def test_a_page_of_the_server_itself_is_accepted(host: bytes, origin: bytes, expected: int) -> None:
    assert origin_status(origin, host=host) == expected


def test_a_page_with_the_name_of_an_unchecked_host_is_not_trusted() -> None:
    policy = OriginPolicy(hosts=["*"])
    assert status(policy.check([b"evil.example"], [b"http://evil.example"])) == 403


def test_a_listed_page_is_accepted_when_any_host_is() -> None:
    policy = OriginPolicy(hosts=["*"], origins=["http://app.example.com"])
    assert policy.check([b"any.example"], [b"http://app.example.com"]) is None


@pytest.mark.parametrize(
    ("entry", "origin", "expected"),
    [
        pytest.param("https://app.example.com", b"https://app.example.com", 200, id="as listed"),
        pytest.param("https://App.example.com", b"HTTPS://app.EXAMPLE.com", 200, id="in any case"),
        pytest.param("https://app.example.com:443", b"https://app.example.com", 200, id="default port listed"),
        pytest.param("https://app.example.com", b"https://app.example.com:443", 200, id="default port sent"),
        pytest.param("http://app.example.com:3000", b"http://app.example.com:3000", 200, id="with a port"),
        pytest.param("https://app.example.com", b"http://app.example.com", 403, id="another scheme"),
        pytest.param("https://app.example.com", b"https://app.example.com:8443", 403, id="another port"),
        pytest.param("https://app.example.com", b"https://x.app.example.com", 403, id="a name below"),
        pytest.param("https://app.example.com", b"https://app.example.com.evil.org", 403, id="labels of another"),
        pytest.param("http://localhost:3000", b"http://localhost:3000", 200, id="loopback, for a public server"),
        pytest.param("http://localhost:3000", b"http://localhost:3001", 403, id="loopback on another port"),
    ],
)
@pytest.mark.parametrize("option", ["origins", "cors"])
def test_a_listed_page_is_accepted(option: str, entry: str, origin: bytes, expected: int) -> None:
    lists = {option: [entry]}
    policy = OriginPolicy(hosts=["mcp.example.com"], origins=lists.get("origins", ()), cors=lists.get("cors", ()))
    assert status(policy.check([PUBLIC], [origin])) == expected


def test_any_page_is_accepted_if_cors_origins_is_a_star() -> None:
    assert origin_status(b"https://any.example", cors=("*",)) == 200


def test_the_refusal_of_a_page_names_the_setting_that_allows_it() -> None:
    refusal = OriginPolicy().check([LOCAL], [b"https://app.example.com"])
    assert refusal is not None
    assert 'allowed_origins=["https://app.example.com"]' in refusal.message


# --- refusals and settings -------------------------------------------------------------------------------------------


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
    "entry",
    [
        "https://mcp.example.com",
        "mcp.example.com/mcp",
        "*.example.com",
        "mcp.example.com:",
        "mcp.example.com:80:*",
        "*:8000",
        "2001:db8::1",
        "mcp.example.com.",
        "mcp example.com",
        "müller.example",
        "",
    ],
)
def test_a_malformed_allowed_host_is_a_config_error(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowed_hosts has"):
        OriginPolicy(hosts=[entry])


@pytest.mark.parametrize("entry", ["app.example.com", "https://app.example.com/", "https://*.example.com", "null", ""])
def test_a_malformed_allowed_origin_is_a_config_error(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowed_origins has"):
        OriginPolicy(origins=[entry])


def test_allowed_origins_does_not_accept_a_star() -> None:
    with pytest.raises(ConfigError, match="allowed_origins has"):
        OriginPolicy(origins=["*"])


def test_a_malformed_cors_origin_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="cors_origins has"):
        OriginPolicy(cors=["app.example.com"])


def test_a_string_instead_of_a_list_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r'allowed_hosts=\["mcp.example.com"\]'):
        OriginPolicy(hosts="mcp.example.com")


# --- repeated checks -------------------------------------------------------------------------------------------------


def test_a_repeated_request_is_checked_the_same_way() -> None:
    policy = OriginPolicy()
    policy.check([LOCAL], [b"http://localhost"])
    assert policy.check([LOCAL], [b"http://localhost"]) is None
    assert status(policy.check([LOCAL], [b"http://evil.example"])) == 403
    assert status(policy.check([b"evil.example"], [b"http://localhost"])) == 403


def test_the_address_of_one_connection_is_not_accepted_on_another() -> None:
    policy = OriginPolicy()
    policy.check([b"192.0.2.7"], [], server=("192.0.2.7", 80))
    assert status(policy.check([b"192.0.2.7"], [], server=("192.0.2.8", 80))) == 403


def test_many_hosts_are_accepted_repeatedly() -> None:
    policy = OriginPolicy()
    hosts = [f"localhost:{port}".encode() for port in range(1, 2000)]
    assert {policy.check([host], []) for host in hosts * 2} == {None}


# --- arbitrary input -------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    [LOCAL, b"localhost", b"127.0.0.1", b"[::1]", b"evil.example", b"\xff", b"@", b":", b".", b"80"]
)
HEADERS = st.lists(st.binary(max_size=60) | st.lists(NAMES, max_size=4).map(b"".join), max_size=2)
SERVERS = st.none() | st.tuples(st.text(max_size=20), st.none() | st.integers())


@given(HEADERS, HEADERS.map(lambda names: [b"http://" + name for name in names]) | HEADERS, SERVERS)
def test_arbitrary_headers_are_checked_without_an_exception(
    hosts: list[bytes], origins: list[bytes], server: tuple[str, int | None] | None
) -> None:
    assert status(
        OriginPolicy(hosts=["a.example"], cors=["http://b.example"]).check(hosts, origins, server=server)
    ) in (
        200,
        400,
        403,
    )


@given(st.ip_addresses(v=4), st.sampled_from([None, "192.0.2.7"]))
def test_only_loopback_and_own_ipv4_addresses_are_accepted(address: IPv4Address, server: str | None) -> None:
    expected = address.is_loopback or str(address) == server
    arrived = None if server is None else (server, 80)
    assert (host_status(str(address).encode(), server=arrived) == 200) is expected


@given(st.ip_addresses(v=6))
def test_only_the_loopback_ipv6_address_is_accepted(address: IPv6Address) -> None:
    assert (host_status(f"[{address}]:80".encode()) == 200) is (int(address) == 1)


@given(st.ip_addresses())
def test_every_local_address_is_accepted_as_host(address: IPv4Address | IPv6Address) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    mapped = address.version == 6 and address.ipv4_mapped is not None
    expected = 403 if address.is_unspecified or mapped else 200
    assert host_status(host.encode(), server=(str(address), 80)) == expected


# --- CORS ------------------------------------------------------------------------------------------------------------

APP = b"https://app.example.com"


@pytest.mark.parametrize("origin", [None, APP, b"null", b"http://localhost", b"*"], ids=str)
def test_no_page_may_read_responses_by_default(origin: bytes | None) -> None:
    policy = OriginPolicy(origins=["https://app.example.com"])
    assert policy.cors_headers(origin) == []
    assert policy.preflight(origin, b"POST", requested_headers=b"content-type") is None


@pytest.mark.parametrize(
    "origin",
    [
        None,
        b"null",
        b"http://localhost",
        b"https://evil.example",
        b"http://app.example.com",
        APP + b"/",
        APP + b"\r\nX: y",
    ],
    ids=str,
)
def test_a_page_that_is_not_listed_may_not_read_responses(origin: bytes | None) -> None:
    policy = OriginPolicy(cors=["https://app.example.com"])
    assert policy.cors_headers(origin) == []
    assert policy.preflight(origin, b"POST", requested_headers=b"content-type") is None


def test_a_listed_page_may_read_and_sees_the_headers_it_needs() -> None:
    assert dict(OriginPolicy(cors=["https://app.example.com"]).cors_headers(APP)) == {
        b"access-control-allow-origin": APP,
        b"access-control-expose-headers": b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce, "
        b"Retry-After",
        b"vary": b"Origin",
    }


def test_any_page_may_read_only_if_configured() -> None:
    headers = dict(OriginPolicy(cors=["*"]).cors_headers(b"https://any.example"))
    assert headers[b"access-control-allow-origin"] == b"*"


@pytest.mark.parametrize("cors", ["*", "https://app.example.com"])
def test_credentials_are_never_allowed(cors: str) -> None:
    policy = OriginPolicy(cors=[cors])
    preflight = policy.preflight(APP, b"POST", requested_headers=b"authorization")
    assert preflight is not None
    assert b"access-control-allow-credentials" not in dict([*policy.cors_headers(APP), *preflight])


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


@pytest.mark.parametrize(
    ("requested", "allowed"),
    [
        pytest.param(None, None, id="none"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"content-type,accept , authorization", b"content-type, accept, authorization", id="ours"),
        pytest.param(b"Mcp-Session-Id, MCP-Protocol-Version", b"mcp-session-id, mcp-protocol-version", id="any case"),
        pytest.param(b"last-event-id,mcp-method,mcp-name", b"last-event-id, mcp-method, mcp-name", id="the protocol's"),
        pytest.param(b"dpop,traceparent,tracestate,baggage", b"dpop, traceparent, tracestate, baggage", id="tracing"),
        pytest.param(b"mcp-param-city, Mcp-Param-Unit", b"mcp-param-city, mcp-param-unit", id="mirrored parameters"),
        pytest.param(b"x-evil, cookie, host, origin", None, id="others"),
        pytest.param(b"accept, x-evil", b"accept", id="ours among others"),
        pytest.param(b"accept,accept", b"accept", id="one twice"),
        pytest.param(b"mcp-param-", None, id="a parameter without name"),
        pytest.param(b"mcp-param-a b", None, id="a parameter that is no token"),
        pytest.param(b"mcp-param-a\r\nset-cookie: x", None, id="a header in the header"),
        pytest.param(b"*", None, id="a star"),
        pytest.param(b"x," * 1000 + b"accept", None, id="beyond what is read"),
    ],
)
def test_a_preflight_allows_the_headers_of_the_protocol(requested: bytes | None, allowed: bytes | None) -> None:
    answer = OriginPolicy(cors=["https://app.example.com"]).preflight(APP, b"POST", requested_headers=requested)
    assert answer is not None
    assert dict(answer).get(b"access-control-allow-headers") == allowed


@pytest.mark.parametrize("method", [None, b"PUT", b"PATCH", b"TRACE", b"post", b"*", b""], ids=str)
def test_a_preflight_for_another_method_is_refused(method: bytes | None) -> None:
    assert OriginPolicy(cors=["*"]).preflight(APP, method, requested_headers=None) is None


@pytest.mark.parametrize("method", [b"POST", b"GET", b"DELETE", b"OPTIONS"], ids=bytes.decode)
def test_a_preflight_for_a_method_of_the_endpoint_is_answered(method: bytes) -> None:
    assert OriginPolicy(cors=["*"]).preflight(APP, method, requested_headers=None) is not None


@given(st.none() | st.binary(), st.none() | st.binary(), st.none() | st.binary())
def test_arbitrary_preflights_never_let_a_page_read(
    origin: bytes | None, method: bytes | None, requested: bytes | None
) -> None:
    policy = OriginPolicy(cors=["https://app.example.com"])
    assert (policy.cors_headers(origin), policy.preflight(origin, method, requested_headers=requested)) == ([], None)


# --- media types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"application/json", "application/json", id="plain"),
        pytest.param(b"Application/JSON", "application/json", id="in any case"),
        pytest.param(b" text/plain ; charset=utf-8", "text/plain", id="with a parameter"),
        pytest.param(b'text/plain; a="b;c\\"d"; e=f', "text/plain", id="with a quoted parameter"),
        pytest.param(b"text/plain;", "text/plain", id="with a final semicolon"),
        pytest.param(b"application/vnd.a+json", "application/vnd.a+json", id="with a suffix"),
        pytest.param(None, None, id="absent"),
        pytest.param(b"", None, id="empty"),
        pytest.param(b"application", None, id="no subtype"),
        pytest.param(b"application/", None, id="an empty subtype"),
        pytest.param(b"/json", None, id="an empty type"),
        pytest.param(b"application / json", None, id="spaces inside"),
        pytest.param(b"application/json, text/plain", None, id="two types"),
        pytest.param(b"application/json text/plain", None, id="two types with a space"),
        pytest.param(b"application/json; charset", None, id="a parameter without value"),
        pytest.param(b'application/json; a="b', None, id="a quote that does not close"),
        pytest.param(b"application/json\0", None, id="NUL"),
        pytest.param(b"application/json\n", None, id="a newline"),
        pytest.param(b"application/js\xc3\xb6n", None, id="Unicode"),
    ],
)
def test_the_media_type_is_parsed(value: bytes | None, expected: str | None) -> None:
    assert media_type(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"application/json", True, id="plain"),
        pytest.param(b"application/json; charset=utf-8", True, id="in UTF-8"),
        pytest.param(b"application/json ;charset=Utf-8", True, id="in UTF-8 in any case"),
        pytest.param(b'APPLICATION/json; Charset="UTF-8"', True, id="in UTF-8 in quotes"),
        pytest.param(b"application/json; profile=x", True, id="with another parameter"),
        pytest.param(b"application/json; charset=latin-1", False, id="in another charset"),
        pytest.param(b"application/json; charset=utf-16", False, id="in UTF-16"),
        pytest.param(b"application/json; charset=utf-8; charset=latin-1", False, id="in two charsets"),
        pytest.param(b"text/plain", False, id="what a page may send: text"),
        pytest.param(b"application/x-www-form-urlencoded", False, id="what a page may send: a form"),
        pytest.param(b"multipart/form-data; boundary=x", False, id="what a page may send: a form in parts"),
        pytest.param(b"text/plain; application/json", False, id="text that mentions JSON"),
        pytest.param(b"text/plain; a=application/json", False, id="text with JSON as a parameter"),
        pytest.param(b"application/json, text/plain", False, id="two types"),
        pytest.param(b"text/json", False, id="another name for JSON"),
        pytest.param(b"application/problem+json", False, id="a kind of JSON"),
        pytest.param(b"application/jsonl", False, id="a longer name"),
        pytest.param(b"", False, id="empty"),
        pytest.param(None, False, id="absent"),
    ],
)
def test_a_body_is_json(value: bytes | None, expected: bool) -> None:
    assert is_json(value) is expected


@pytest.mark.parametrize(
    ("value", "json", "stream"),
    [
        pytest.param(b"application/json, text/event-stream", True, True, id="both"),
        pytest.param(b"text/event-stream,application/json", True, True, id="both the other way"),
        pytest.param(b"Application/JSON , TEXT/event-stream", True, True, id="both in any case"),
        pytest.param(b"application/json", True, False, id="JSON"),
        pytest.param(b"text/event-stream", False, True, id="a stream"),
        pytest.param(b"text/event-stream; charset=utf-8;q=0.5", False, True, id="a stream with parameters"),
        pytest.param(None, True, True, id="absent"),
        pytest.param(b"", True, True, id="empty"),
        pytest.param(b"  ", True, True, id="blank"),
        pytest.param(b"*/*", True, True, id="anything"),
        pytest.param(b"application/*", True, False, id="any application"),
        pytest.param(b"text/*", False, True, id="any text"),
        pytest.param(b"text/html, application/xhtml+xml", False, False, id="neither"),
        pytest.param(b"application/json;q=0, text/event-stream", False, True, id="JSON refused"),
        pytest.param(b"application/json;q=0.000, */*", False, True, id="JSON refused, anything else"),
        pytest.param(b"*/*, text/event-stream; Q=0", True, False, id="anything, a stream refused"),
        pytest.param(b"text/*;q=0, text/event-stream", False, True, id="the closer range decides for"),
        pytest.param(b"application/*, application/json;q=0.0", False, False, id="the closer range decides against"),
        pytest.param(b"application/json;q=0, application/json", True, False, id="refused and taken"),
        pytest.param(b"*/*;q=0", False, False, id="anything refused"),
        pytest.param(b"application/json;q=0.001", True, False, id="hardly taken"),
        pytest.param(b"application/json;q=1", True, False, id="taken"),
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
