"""The secrets that a command has met, so that no sentence, log line or error of it shows one.

Each run of the command line has one book. Commands give it to the host they open; whatever is written about the command
itself goes through it. The answer of a server is the user's own and is not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from trunkline.host.secrecy.book import SecretBook

__all__ = ["Secrecy", "book_here", "hidden", "hidden_in"]


class Secrecy:
    """Holds the book of one run; it is made when there is something to write into it."""

    def __init__(self) -> None:
        """Begin without a book."""
        self._book: SecretBook | None = None

    @property
    def book(self) -> SecretBook:
        """The book; it is loaded and made now, if that was not done before."""
        if self._book is None:
            from trunkline.host.secrecy.book import SecretBook

            self._book = SecretBook()
        return self._book

    def hide(self, value: Any) -> Any:
        """Take the secrets that are known out of a text or a JSON value."""
        return value if self._book is None else self._book.hide_in(value)


def book_here() -> SecretBook:
    """Give the book of the run we are in."""
    return _here().book


def hidden(text: str) -> str:
    """Take out of a text the secrets that the run we are in has met."""
    return str(_here().hide(text))


def hidden_in(value: Any) -> Any:
    """Do the same to all texts of a JSON value."""
    return _here().hide(value)


def _here() -> Secrecy:
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_object(Secrecy)
    return Secrecy() if found is None else found
