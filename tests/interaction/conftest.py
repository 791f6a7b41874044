"""Runs the test of a row over the row's transports and revisions."""

from __future__ import annotations

import pytest

from tests.interaction.rows import Row
from tests.interaction.wire import Wire


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the test of a row with a ``wire`` for each leg."""
    row: Row | None = getattr(metafunc.function, "row", None)
    if row is not None:
        legs = row.legs()
        wires = [Wire(transport, revision) for transport, revision in legs]
        metafunc.parametrize("wire", wires, ids=["-".join(leg) for leg in legs])
