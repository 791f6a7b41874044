"""The tests that stand beside the hosting example, run with the others."""

from __future__ import annotations

from examples.hosting.test_hosting import (
    served,
    test_a_gateway_serves_both_as_one,
    test_a_script_uses_two_servers,
)

__all__ = ["served", "test_a_gateway_serves_both_as_one", "test_a_script_uses_two_servers"]
