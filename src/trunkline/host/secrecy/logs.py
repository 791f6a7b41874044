"""Redaction of secrets in the package's log records, before any handler sees them.

A logger's filter applies only to records logged there, not to those of child loggers: so it is installed on each logger
of the package. The handlers, and where they write, are the program's business.
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
# Records are not shortened: a traceback is wanted in full.
_LONGEST = 1024 * 1024
_USUAL = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime"}


class LogRedaction(logging.Filter):
    """Redacts known secrets, and whatever looks like a credential, in log records of the package."""

    def __init__(self, book: SecretBook) -> None:
        """Use a registry; nothing is filtered before ``install``."""
        super().__init__()
        self._book = book

    def install(self) -> None:
        """Start filtering."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def remove(self) -> None:
        """Stop filtering."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record; none is dropped."""
        hide = self._book.redaction(text_length=_LONGEST).text
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a record that cannot be formatted is the handler's to report
            message = f"{record.msg} (arguments do not match the format)"
        record.msg, record.args = hide(message), None
        if record.exc_info is not None:
            # The exception object contains what its text does.
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
