"""Completions as the official SDK serves them: one function for every reference, known to the server or not."""

from __future__ import annotations

import logging
from typing import Any

import trunkline.types as t
from trunkline.compat.types import model_class, to_model, to_struct
from trunkline.errors import HandlerError, MissingCapability, RequestFailed

__all__ = ["official_completions"]

record = logging.getLogger("mcp.server.mcpserver.server")


def official_completions(server: Any) -> Any:
    """Return the handler of ``completion/complete``."""
    inner = server.handlers["completion/complete"]

    async def handle(exchange: Any, params: t.CompleteRequestParams) -> t.CompleteResult:
        function = server.completion_handler
        if function is None:
            return await inner(exchange, params)  # type: ignore[no-any-return]
        try:
            found = await function(to_model(params.ref), to_model(params.argument), to_model(params.context))
            if found is None:
                return t.CompleteResult(completion=t.Completion(values=[]))
            completion = model_class("Completion").model_validate(getattr(found, "completion", found))
            return t.CompleteResult(completion=to_struct(completion, t.Completion))
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            name = params.argument.name
            record.error("Completion for argument %r raised an unexpected exception", name, exc_info=error)
            raise RequestFailed(f"Error completing argument {name}") from error

    return handle
