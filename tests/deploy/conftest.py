"""Fixtures of the tests of the deployment files."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """Remove the log handlers that parsing ``--log-format json`` installs in this process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
