"""Versions and ranges: rows whose answers are those of npm's own ``semver`` package."""

from __future__ import annotations

import pytest

from trunkline_servers.npm.semver import parse_range, parse_version

ORDERED = ["0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1"]

MATCHES = [
    ("^1.2.3", "1.9.0", True),
    ("^1.2.3", "2.0.0", False),
    ("^1.2.3", "2.0.0-alpha", False),
    ("^0.2.3", "0.2.9", True),
    ("^0.2.3", "0.3.0", False),
    ("^0.0.3", "0.0.4", False),
    ("^0.x", "0.9.0", True),
    ("^0.0", "0.1.0", False),
    ("^1.2.3-beta.2", "1.2.3-beta.4", True),
    ("^1.2.3-beta.2", "1.2.4-beta.4", False),
    ("~1.2.3", "1.2.9", True),
    ("~1.2", "1.3.0", False),
    ("~1", "1.9.9", True),
    ("~> 1.2.3", "1.2.4", True),
    ("1.2.x", "1.2.99", True),
    ("1.X", "2.0.0", False),
    ("*", "0.0.1", True),
    ("*", "1.0.0-alpha", False),
    ("", "4.5.6", True),
    ("1.2 - 2.3", "2.3.9", True),
    ("1.2.3 - 2.3.4", "2.3.5", False),
    (">= 1.2.0 < 2", "1.99.0", True),
    (">=1.2.0 <2", "2.0.0-alpha", False),
    (">1.2", "1.2.5", False),
    (">1.2", "1.3.0", True),
    ("<1.2", "1.2.0-alpha", False),
    ("<=1.2", "1.2.9", True),
    (">*", "9.9.9", False),
    ("<1 || >=3", "3.0.0", True),
    ("<1 || >=3", "2.0.0", False),
    ("=v1.2.3", "1.2.3+build.5", True),
    ("1.2.3-alpha.10", "1.2.3-alpha.9", False),
]


@pytest.mark.parametrize(("text", "version", "expected"), MATCHES)
def test_a_range_matches_what_npm_says(text: str, version: str, expected: bool) -> None:
    spec, parsed = parse_range(text), parse_version(version)
    assert spec is not None
    assert parsed is not None
    assert spec.matches(parsed) is expected


@pytest.mark.parametrize(("lower", "higher"), list(zip(ORDERED, [*ORDERED[1:], "1.0.0"], strict=True)))
def test_versions_are_ordered(lower: str, higher: str) -> None:
    low, high = parse_version(lower), parse_version(higher)
    assert low is not None
    assert high is not None
    assert low < high
    assert str(low) == lower


NO_RANGES = [
    "latest",
    "1.2.3.4",
    "01.2.3",
    "^",
    ">1 <",
    "git+https://x/y",
    "file:../x",
    "x.1",
    "1" * 17,
    "\u0661.\u0662",
]


@pytest.mark.parametrize("text", [*NO_RANGES, "^1.0.0 " * 2000])
def test_an_invalid_range_is_none(text: str) -> None:
    assert parse_range(text) is None


@pytest.mark.parametrize(
    "text", ["1.2", "1.2.x", "a.b.c", "1.2.3-", "", "1.2.3-ä", "9" * 9000, " " * 4000, "1.2.3-" + "a" * 300]
)
def test_an_invalid_version_is_none(text: str) -> None:
    assert parse_version(text) is None


def test_the_newest_version_of_a_range_is_found() -> None:
    spec = parse_range("^1")
    versions = [parsed for text in ("1.2.0", "1.10.0", "2.0.0", "1.11.0-beta") if (parsed := parse_version(text))]
    assert spec is not None
    assert str(spec.newest(versions)) == "1.10.0"
