"""The table of addresses: every special range to its last address, and the public ones beside them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.origins import always
from trunkline.errors import FetchError
from trunkline.net import Fetcher, special_range

#: First and last address of each range, and a word of its description.
SPECIAL = [
    ("0.0.0.0", "0.255.255.255", "unspecified"),
    ("10.0.0.0", "10.255.255.255", "private"),
    ("100.64.0.0", "100.127.255.255", "carriers"),
    ("127.0.0.0", "127.255.255.255", "loopback"),
    ("168.63.129.16", "168.63.129.16", "cloud"),
    ("169.254.0.0", "169.254.255.255", "link-local"),
    ("172.16.0.0", "172.31.255.255", "private"),
    ("192.0.0.0", "192.0.0.255", "reserved"),
    ("192.0.2.0", "192.0.2.255", "documentation"),
    ("192.31.196.0", "192.31.196.255", "reserved"),
    ("192.52.193.0", "192.52.193.255", "reserved"),
    ("192.88.99.0", "192.88.99.255", "6to4"),
    ("192.168.0.0", "192.168.255.255", "private"),
    ("192.175.48.0", "192.175.48.255", "reserved"),
    ("198.18.0.0", "198.19.255.255", "benchmarks"),
    ("198.51.100.0", "198.51.100.255", "documentation"),
    ("203.0.113.0", "203.0.113.255", "documentation"),
    ("224.0.0.0", "239.255.255.255", "multicast"),
    ("240.0.0.0", "255.255.255.254", "reserved"),
    ("255.255.255.255", "255.255.255.255", "broadcast"),
    ("::", "::", "unspecified"),
    ("::1", "::1", "loopback"),
    ("::2", "::ffff:ffff", "IPv4 address in"),
    ("::ffff:0:0", "::ffff:ffff:ffff", "IPv4 address in"),
    ("::ffff:8.8.8.8", "::ffff:127.0.0.1", "IPv4 address in"),
    ("::ffff:0:0:0", "::ffff:0:ffff:ffff", "IPv4 address in"),
    ("64:ff9b::", "64:ff9b::ffff:ffff", "NAT64"),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "NAT64"),
    ("100::", "100::ffff:ffff:ffff:ffff", "reserved"),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "Teredo"),
    ("2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
    ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", "benchmarks"),
    ("2001:10::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "6to4"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
    ("4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "unique local"),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local"),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "site-local"),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"),
    ("fe80::1%lo", "2600::1%eth0", "zone"),
    ("nonsense", "", "not an IP address"),
]  # fmt: skip
EDGES = [(address, word) for first, last, word in SPECIAL for address in dict.fromkeys((first, last))]

PUBLIC = [
    *("1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0"),
    *("169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.255.255", "198.17.255.255", "198.20.0.0"),
    *("223.255.255.255", "2001:200::", "2003::", "2600::1", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
]


async def test_a_name_with_a_special_address_is_not_fetched() -> None:
    for address, word in EDGES:
        with pytest.raises(FetchError, match=rf"stranger\.example:443: .* is .*{word}"):
            await Fetcher(resolve=always(address)).fetch("GET", "https://stranger.example/")


def test_the_addresses_beside_the_special_ones_are_public() -> None:
    assert [address for address in PUBLIC if special_range(address) is not None] == []


@given(st.ip_addresses())
def test_every_address_that_is_not_global_is_special(address: IPv4Address | IPv6Address) -> None:
    assert address.is_global or special_range(str(address)) is not None


@given(st.ip_addresses(v=4), st.sampled_from(["::", "::ffff:", "::ffff:0:", "64:ff9b::", "64:ff9b:1::"]))
def test_no_ipv4_address_passes_inside_an_ipv6_one(inner: IPv4Address, prefix: str) -> None:
    assert special_range(str(ip_address(f"{prefix}{inner}"))) is not None


@given(st.ip_addresses(v=4))
def test_no_6to4_address_passes(inner: IPv4Address) -> None:
    assert special_range(str(IPv6Address((0x2002 << 112) | (int(inner) << 80) | 1))) == "a 6to4 address"
