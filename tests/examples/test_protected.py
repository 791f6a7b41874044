"""The test that stands beside the protected server, run with the others."""

from __future__ import annotations

from examples.protected.test_library import *  # noqa: F403
