"""The test that stands beside the protected server, run with the others."""

from __future__ import annotations

from examples.protected.test_library import test_a_client_logs_in_and_borrows_a_book, url

__all__ = ["test_a_client_logs_in_and_borrows_a_book", "url"]
