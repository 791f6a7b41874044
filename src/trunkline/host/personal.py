"""Credentials of each user's own, for servers that are used on behalf of many: never one user's for another.

What a user logged in with is kept in a store of that user's alone, found by who the gateway's authentication says the
user is. A server that every user reaches with credentials of his own is never shown the host's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trunkline.errors import ServerUnavailable
from trunkline.host.entries import ServerEntry
from trunkline.host.passing.lanes import Credentials
from trunkline.host.supervision.clients import Logins, says_who_asks
from trunkline.protocol.caller import Principal

__all__ = ["personal", "store_path"]


def store_path(folder: Path, *, issuer: str | None, subject: str) -> Path:
    """Say where a user's logins are; the name gives nobody away, and is no path whatever the subject says."""
    name = hashlib.sha256(f"{issuer or ''}\0{subject}".encode()).hexdigest()[:32]
    return folder / "users" / name / "logins"


def personal(folder: Path, principal: Principal | None) -> Credentials:
    """Give the credentials of one user.

    Raises (when they are asked for):
        ServerUnavailable: nobody knows who asks, or the user has not logged in there.
    """

    async def credentials(entry: ServerEntry) -> Mapping[str, Any]:
        if entry.url is None or says_who_asks(entry):
            return {}
        if principal is None:
            raise ServerUnavailable(
                f"{entry.name} is reached with each user's own login, and nobody knows who asks: serve with auth"
            )
        from trunkline.auth.store import FileStore

        path = store_path(folder, issuer=principal.issuer, subject=principal.subject)
        login = await Logins(FileStore(path)).find(entry)
        if login is None:
            raise ServerUnavailable(
                f"{entry.name} wants a login of {principal.subject}; run: "
                f"trunkline auth login {entry.name} --user {principal.subject}"
            )
        return {"auth": login}

    return credentials
