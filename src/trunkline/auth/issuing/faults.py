"""What an authorization server refuses, and how it says so.

An ``OAuthFault`` is answered in the form that OAuth gives errors: a code from a fixed list and a sentence. A
``PageFault`` is meant for a person in a browser: nobody can be redirected safely, so a page says what is wrong.
"""

from __future__ import annotations

__all__ = ["OAuthFault", "PageFault"]


class OAuthFault(Exception):
    """A request of a client that is refused, with an error code of OAuth."""

    def __init__(self, error: str, description: str, *, status: int = 400, headers: tuple[tuple[str, str], ...] = ()):
        """Keep the code, the sentence, and how HTTP is to carry them."""
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.headers = headers


class PageFault(Exception):
    """A request of a browser that is refused on a page of its own."""

    def __init__(self, status: int, title: str, sentence: str, *, headers: tuple[tuple[str, str], ...] = ()):
        """Keep what the page says."""
        super().__init__(sentence)
        self.status = status
        self.title = title
        self.sentence = sentence
        self.headers = headers
