"""The secrets known to one run of the command line, so that none appears in its messages, logs or errors.

Each run has one secret registry. Commands pass it to the host they open, and all messages of the command itself are
redacted with it. The answer of a server belongs to the user and is not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from trunkline.host.secrecy.book import SecretBook

__all__ = ["Secrecy", "book_here", "hidden", "hidden_in"]


class Secrecy:
    """The secret registry of one run, created when it is first needed."""

    def __init__(self) -> None:
        """Start without a registry."""
        self._book: SecretBook | None = None

    @property
    def book(self) -> SecretBook:
        """The registry; imported and created on first use."""
        if self._book is None:
            from trunkline.host.secrecy.book import SecretBook

            self._book = SecretBook()
        return self._book

    def hide(self, value: Any) -> Any:
        """Redact the known secrets in a text or a JSON value."""
        return value if self._book is None else self._book.hide_in(value)


def book_here() -> SecretBook:
    """Return the secret registry of the current run."""
    return _here().book


def hidden(text: str) -> str:
    """Redact the secrets known to the current run in a text."""
    return str(_here().hide(text))


def hidden_in(value: Any) -> Any:
    """Redact the secrets known to the current run in all strings of a JSON value."""
    return _here().hide(value)


def _here() -> Secrecy:
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_object(Secrecy)
    return Secrecy() if found is None else found
