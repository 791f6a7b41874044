"""Fixtures of the attacks: the command line and its prompts, as their own tests run them."""

from __future__ import annotations

from tests.cli.conftest import cli
from tests.cli.ui.test_reviews import elicited, reviewed

__all__ = ["cli", "elicited", "reviewed"]
