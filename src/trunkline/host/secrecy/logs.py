"""Takes secrets out of the package's log records, before any handler sees them.

A filter of a logger is asked about what is logged there, not about what comes from loggers below it: so it is put on
each logger that the package has. Whose handlers there are, and where they write, is the program's business.
"""

from __future__ import annotations

import logging

from trunkline.host.secrecy.book import SecretBook

__all__ = ["LOGGERS", "LogRedaction"]

#: Every logger of the package.
LOGGERS: tuple[str, ...] = (
    "trunkline",
    "trunkline.auth",
    "trunkline.host",
    "trunkline.host.chat",
    "trunkline.http",
    "trunkline.servers",
    "trunkline.transports",
)
# A record is not cut: whoever logs a traceback wants all of it.
_LONGEST = 1024 * 1024
_USUAL = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime"}


class LogRedaction(logging.Filter):
    """Hides what a book knows, and what looks like a credential, in records of the package."""

    def __init__(self, book: SecretBook) -> None:
        """Take the book; nothing is filtered before ``install``."""
        super().__init__()
        self._book = book

    def install(self) -> None:
        """Filter from now on."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def remove(self) -> None:
        """Filter no more."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite a record; none is held back."""
        hide = self._book.redaction(text_length=_LONGEST).text
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - what cannot be put together is the handler's to complain about
            message = f"{record.msg} (with arguments that do not fit)"
        record.msg, record.args = hide(message), None
        if record.exc_info is not None:
            # The error itself holds what its text does.
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = hide(record.exc_text)
        if record.stack_info:
            record.stack_info = hide(record.stack_info)
        for name, value in vars(record).items():
            if name not in _USUAL and isinstance(value, str):
                setattr(record, name, hide(value))
        return True
