"""Runs the one test of a row over the row's transports and revisions."""

from __future__ import annotations

import pytest

from tests.interaction.tables import ROWS
from tests.interaction.wire import Wire


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a marked test with a ``wire`` for each leg of its row."""
    id = getattr(metafunc.function, "behaviour", None)
    if id is not None:
        legs = ROWS[id].legs()
        wires = [Wire(transport, revision) for transport, revision in legs]
        metafunc.parametrize("wire", wires, ids=["-".join(leg) for leg in legs])
