"""The audit part of the API: searches the audit trail and verifies it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.errors import ConfigError
from trunkline.host.audit.reader import AuditFilter, query_newest, verify
from trunkline.host.audit.trail import AuditTrail

__all__ = ["AuditPart"]

_PAGE = 100  # Default number of entries in a response.
_MOST = 1000  # Maximum; the page requests the next entries with ``before``.


class AuditPart(ConsolePart):
    """Reads the trail of the host; other processes may write to it too."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (Route("GET", "/audit", self._query), Route("POST", "/audit/verify", self._verify))

    async def _query(self, request: ApiRequest) -> dict[str, Any]:
        trail, query = self._trail(), request.query
        if trail is None:
            return {"file": None, "entries": [], "more": None}
        exact: dict[str, Any] = {
            name: query[name] for name in ("outcome", "stage", "kind", "session", "act_id") if query.get(name)
        }
        where = AuditFilter(server=query.get("server") or None, tool=query.get("tool") or None, **exact)
        limit, before = _number(query.get("limit")) or _PAGE, _number(query.get("before"))
        try:
            # In a thread: each file of a trail has up to 64 MiB.
            found, more = await asyncio.to_thread(
                query_newest, trail.path, where, text=query.get("text", ""), before=before, limit=min(limit, _MOST)
            )
        except ConfigError as error:
            raise ApiError(500, "unreadable", str(error)) from error
        # Entries are redacted when written; some secrets become known only later.
        entries = self.console.core.secrets.hide_in(found)
        return {"file": trail.path, "entries": entries, "more": more}

    async def _verify(self, request: ApiRequest) -> dict[str, Any]:
        trail = self._trail()
        if trail is None:
            raise ApiError(409, "no_audit", "This host writes no audit trail.", fix="Open the host with audit=True.")
        try:
            found = await asyncio.to_thread(verify, trail.path)
        except ConfigError as error:
            raise ApiError(500, "unreadable", str(error)) from error
        where = "" if found.file is None else f"{found.file}:{found.first_bad_line}: "
        return {
            "ok": found.ok,
            "entries": found.entries,
            "problem": None if found.ok else f"{where}{found.reason}",
            "remarks": found.remarks,
            "seq": found.seq,
            "hash": found.hash,
        }

    def _trail(self) -> AuditTrail | None:
        return self.console.core.audit


def _number(given: str | None) -> int | None:
    if not given:
        return None
    if not given.isdecimal():
        raise ApiError(400, "invalid_request", '"before" and "limit" must be numbers.')
    return int(given)
