"""The errors of an authorization server, and how they are reported.

An ``OAuthError`` becomes an OAuth error response: a code from a fixed list and a description. A ``PageError`` is for a
user in a browser: a redirect would not be safe, so a page shows what is wrong.
"""

from __future__ import annotations

__all__ = ["OAuthFault", "PageFault"]


class OAuthFault(Exception):
    """A client's request is rejected with an OAuth error code."""

    def __init__(self, error: str, description: str, *, status: int = 400, headers: tuple[tuple[str, str], ...] = ()):
        """Set the code, the description, and the HTTP status and headers."""
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.headers = headers


class PageFault(Exception):
    """A browser's request is rejected with an error page."""

    def __init__(self, status: int, title: str, sentence: str, *, headers: tuple[tuple[str, str], ...] = ()):
        """Set the content of the page."""
        super().__init__(sentence)
        self.status = status
        self.title = title
        self.sentence = sentence
        self.headers = headers
