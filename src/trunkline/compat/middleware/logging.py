"""FastMCP's logging middleware: each message as text, or as JSON."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["BaseLoggingMiddleware", "LoggingMiddleware", "StructuredLoggingMiddleware", "default_serializer"]

#: About how many characters a token of a language model has.
_CHARACTERS_PER_TOKEN = 4


def default_serializer(data: Any) -> str:
    """Return a message as JSON; what JSON cannot express is written as text."""
    if isinstance(data, BaseModel):
        return data.model_dump_json(by_alias=True, fallback=str)
    return to_json(data, fallback=str).decode()


def _get_duration_ms(start_time: float, /) -> float:
    return round((time.perf_counter() - start_time) * 1000, 2)


class BaseLoggingMiddleware(Middleware):
    """Logs each message, and how it ended."""

    logger: logging.Logger
    log_level: int
    include_payloads: bool
    include_payload_length: bool
    estimate_payload_tokens: bool
    max_payload_length: int | None
    methods: list[str] | None
    structured_logging: bool
    payload_serializer: Callable[[Any], str] | None

    def _create_before_message(self, context: MiddlewareContext[Any]) -> dict[str, Any]:
        """Return what is logged before a message is handled."""
        message = self._create_base_message(context, f"{context.type}_start")
        if not (self.include_payloads or self.include_payload_length or self.estimate_payload_tokens):
            return message
        payload = self._serialize_payload(context)
        if self.include_payload_length or self.estimate_payload_tokens:
            if self.estimate_payload_tokens:
                message["payload_tokens"] = len(payload) // _CHARACTERS_PER_TOKEN
            if self.include_payload_length:
                message["payload_length"] = len(payload)
        if self.include_payloads:
            longest = self.max_payload_length
            message["payload"] = payload if longest is None or len(payload) <= longest else f"{payload[:longest]}..."
            message["payload_type"] = type(context.message).__name__
        return message

    def _create_base_message(self, context: MiddlewareContext[Any], event: str) -> dict[str, Any]:
        return {"event": event, "method": context.method or "unknown", "source": context.source}

    def _serialize_payload(self, context: MiddlewareContext[Any]) -> str:
        if self.payload_serializer is None:
            return default_serializer(context.message)
        try:
            return self.payload_serializer(context.message)
        except Exception as error:
            self.logger.warning("The payload serializer failed, the default is used: %s", error, exc_info=True)
            return default_serializer(context.message)

    def _format_message(self, message: dict[str, Any]) -> str:
        """Return what is logged as one line."""
        if self.structured_logging:
            return json.dumps(message, default=str)
        return " ".join(f"{name}={value}" for name, value in message.items())

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Log the message, and how it ended."""
        if self.methods and context.method not in self.methods:
            return await call_next(context)
        self.logger.log(self.log_level, self._format_message(self._create_before_message(context)))
        started = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            event = self._create_base_message(context, f"{context.type}_error")
            event |= {"duration_ms": _get_duration_ms(started), "error": str(error)}
            self.logger.error(self._format_message(event))
            raise
        event = self._create_base_message(context, f"{context.type}_success")
        event["duration_ms"] = _get_duration_ms(started)
        self.logger.log(self.log_level, self._format_message(event))
        return result


class LoggingMiddleware(BaseLoggingMiddleware):
    """Logs each message as text."""

    def __init__(
        self,
        *,
        logger: logging.Logger | None = None,
        log_level: int = logging.INFO,
        include_payloads: bool = False,
        include_payload_length: bool = False,
        estimate_payload_tokens: bool = False,
        max_payload_length: int | None = 1000,
        methods: list[str] | None = None,
        payload_serializer: Callable[[Any], str] | None = None,
    ) -> None:
        """Initialize with the logger, and what is logged of a message."""
        self.logger = logger or logging.getLogger("fastmcp.middleware.logging")
        self.log_level = log_level
        self.include_payloads = include_payloads
        self.include_payload_length = include_payload_length
        self.estimate_payload_tokens = estimate_payload_tokens
        self.max_payload_length = max_payload_length
        self.methods = methods
        self.payload_serializer = payload_serializer
        self.structured_logging = False


class StructuredLoggingMiddleware(BaseLoggingMiddleware):
    """Logs each message as JSON."""

    def __init__(
        self,
        *,
        logger: logging.Logger | None = None,
        log_level: int = logging.INFO,
        include_payloads: bool = False,
        include_payload_length: bool = False,
        estimate_payload_tokens: bool = False,
        methods: list[str] | None = None,
        payload_serializer: Callable[[Any], str] | None = None,
    ) -> None:
        """Initialize with the logger, and what is logged of a message."""
        self.logger = logger or logging.getLogger("fastmcp.middleware.structured_logging")
        self.log_level = log_level
        self.include_payloads = include_payloads
        self.include_payload_length = include_payload_length
        self.estimate_payload_tokens = estimate_payload_tokens
        self.max_payload_length = None
        self.methods = methods
        self.payload_serializer = payload_serializer
        self.structured_logging = True
