"""The public names of ``trunkline.server``."""

from __future__ import annotations

import pytest

import trunkline.server


def test_every_public_name_is_there() -> None:
    missing = [name for name in trunkline.server.__all__ if getattr(trunkline.server, name, None) is None]
    assert (missing, set(trunkline.server.__all__) - set(dir(trunkline.server))) == ([], set())


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Severance'"):
        _ = trunkline.server.Severance  # type: ignore[attr-defined]
