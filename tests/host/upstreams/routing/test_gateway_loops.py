"""Gateways are known by what they announce, whatever else may stand there."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.routing.channels import GATEWAYS, gateway_capability, leads_back


def offering(experimental: Any) -> Offering:
    """Make what a server offers that declares this."""
    return Offering(revision="", capabilities={"experimental": experimental})


def test_a_gateway_names_itself_and_those_behind_it() -> None:
    behind = offering(gateway_capability("b", [offering(gateway_capability("c", []))]))
    assert gateway_capability("a", [behind, behind])[GATEWAYS] == {"ids": ["a", "b", "c"]}


@pytest.mark.parametrize(("own", "expected"), [("a", True), ("b", True), ("z", False)])
def test_a_server_leads_back_to_those_it_names(own: str, expected: bool) -> None:
    announced = gateway_capability("a", [offering(gateway_capability("b", []))])
    assert leads_back(own, offering(announced)) is expected


@pytest.mark.parametrize(
    "experimental",
    [None, 7, [], {}, {GATEWAYS: None}, {GATEWAYS: {}}, {GATEWAYS: {"ids": "a"}}, {GATEWAYS: {"ids": [1, None, []]}}],
    ids=str,
)
def test_malformed_announcements_name_no_gateway(experimental: Any) -> None:
    assert not leads_back("a", offering(experimental))
    assert gateway_capability("a", [offering(experimental)])[GATEWAYS] == {"ids": ["a"]}


def test_no_server_can_make_the_list_long() -> None:
    many = offering({GATEWAYS: {"ids": [f"g{number}" for number in range(10_000)]}})
    long = offering({GATEWAYS: {"ids": ["x" * 10_000]}})
    assert len(gateway_capability("a", [many] * 50)[GATEWAYS]["ids"]) == 64
    assert gateway_capability("a", [long])[GATEWAYS] == {"ids": ["a"]}
