"""The tests that stand beside the hosting example, run with the others."""

from __future__ import annotations

from examples.hosting.test_hosting import *  # noqa: F403
