"""The tests that stand beside the code review, run with the others."""

from __future__ import annotations

from examples.code_review.test_code_review import *  # noqa: F403
