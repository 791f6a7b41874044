"""The limits: one frozen record whose defaults are promises."""

from __future__ import annotations

import msgspec
import pytest

from trunkline.protocol.limits import Limits

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message_bytes", 64 * MEBIBYTE),
        ("body_bytes", 4 * MEBIBYTE),
        ("depth", 256),
        ("batch", 100),
        ("in_flight", 1024),
    ],
)
def test_the_caps_of_the_documentation_are_the_defaults(name: str, value: int) -> None:
    assert getattr(Limits(), name) == value


def test_every_limit_is_positive() -> None:
    assert [name for name, value in msgspec.structs.asdict(Limits()).items() if value <= 0] == []


def test_limits_are_read_from_a_configuration() -> None:
    assert msgspec.convert({"depth": 5, "idle_seconds": 1}, Limits) == Limits(depth=5, idle_seconds=1.0)


def test_an_unknown_limit_is_rejected_by_name() -> None:
    with pytest.raises(msgspec.ValidationError, match="dept"):
        msgspec.convert({"dept": 5}, Limits)
