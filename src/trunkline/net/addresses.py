"""Network addresses: which are not on the public Internet, and the addresses that servers listen on.

The table lists what to reject, rather than using the standard library's ``is_global``, whose result differs between
versions of Python and which considers some forms of IPv4 inside IPv6 public. For IPv6 only the one block that is
allocated at all is public to begin with.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple

from trunkline.errors import FetchError

__all__ = ["ListenAddress", "NotPublicAddress", "is_loopback", "parse_listen_address", "reachable_url", "special_range"]

# IANA's special-purpose registries and the addresses that clouds add. The first matching row gives the name.
_RANGES = tuple(
    (ip_network(network), name)
    for network, name in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a shared address of carriers"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "an address of a cloud's own services"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "an address for documentation"),
        ("192.31.196.0/24", "a reserved address"),
        ("192.52.193.0/24", "a reserved address"),
        ("192.88.99.0/24", "an address of 6to4 relays"),
        ("192.168.0.0/16", "a private address"),
        ("192.175.48.0/24", "a reserved address"),
        ("198.18.0.0/15", "an address for benchmarks"),
        ("198.51.100.0/24", "an address for documentation"),
        ("203.0.113.0/24", "an address for documentation"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("::ffff:0:0/96", "an IPv4 address in an IPv6 one"),
        ("::ffff:0:0:0/96", "an IPv4 address in an IPv6 one"),
        ("::/96", "an IPv4 address in an IPv6 one"),
        ("64:ff9b::/96", "an IPv4 address behind NAT64"),
        ("64:ff9b:1::/48", "an IPv4 address behind NAT64"),
        ("2001::/32", "a Teredo address"),
        ("2001:2::/48", "an address for benchmarks"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "an address for documentation"),
        ("2002::/16", "a 6to4 address"),
        ("3fff::/20", "an address for documentation"),
        ("fc00::/7", "a unique local address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
    )
)
_GLOBAL_IPV6 = ip_network("2000::/3")


class NotPublicAddress(FetchError):
    """The host has an address that is not on the public Internet; ``where`` is its host and port."""

    def __init__(self, where: str, address: str, special: str) -> None:
        """Name the address and its special range."""
        super().__init__(f"Will not fetch from {where}: {address} is {special}, not on the public Internet")
        self.where = where


def special_range(address: str) -> str | None:
    """Return the special range that an address belongs to, in words; None if it is on the public Internet."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "not an IP address"
    if isinstance(parsed, IPv6Address) and parsed.scope_id is not None:
        return "an address with a zone"
    for network, name in _RANGES:
        if parsed in network:
            return name
    return "a reserved address" if parsed.version == 6 and parsed not in _GLOBAL_IPV6 else None


def is_loopback(host: str | None, *, below: bool = True) -> bool:
    """Return True if a host name denotes this machine by itself; with ``below`` also the names under ``localhost``.

    RFC 6761 tells clients to treat those as this machine; code that binds to an address or vouches for one should not
    rely on every resolver to do so.
    """
    name = (host or "").lower()
    if name == "localhost" or (below and name.endswith(".localhost")):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):)?(?P<port>[0-9]{1,5})")
# The hosts of a server that listens on every address; clients need another one.
_ALL_INTERFACES = ("0.0.0.0", "[::]")


class ListenAddress(NamedTuple):
    """An address to listen on; None for a part that was not given."""

    host: str | None = None
    port: int | None = None


def parse_listen_address(text: str) -> ListenAddress | None:
    """Parse ``[HOST:]PORT`` or an empty string; return None if the text is neither."""
    if not text:
        return ListenAddress()
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    host = found["host"]
    return ListenAddress(None if host is None else host.strip("[]"), int(found["port"]))


def reachable_url(origin: str, path: str) -> tuple[str, str]:
    """Return the URL of a listening address for clients on this machine, and a remark if others can reach it too."""
    scheme, _, where = origin.partition("://")
    host, _, port = where.rpartition(":")
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    everywhere = " (and every other address of this machine)" if host in _ALL_INTERFACES else ""
    return f"{scheme}://{here}:{port}{path}", everywhere
