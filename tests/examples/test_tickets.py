"""The tests that stand beside the tickets, run with the others."""

from __future__ import annotations

from examples.tickets.test_tickets import *  # noqa: F403
