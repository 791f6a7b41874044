"""Per-user credentials, for servers that are used on behalf of many users: never one user's for another.

The logins of a user are in a separate store, found by the identity from the gateway's authentication. A server with
per-user credentials never receives those of the host.
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
    """Return the path of a user's logins; a digest, so it reveals no one and no subject can inject a path."""
    name = hashlib.sha256(f"{issuer or ''}\0{subject}".encode()).hexdigest()[:32]
    return folder / "users" / name / "logins"


def personal(folder: Path, principal: Principal | None) -> Credentials:
    """Return the credentials of one user, as a function of a server's entry.

    Raises (when called):
        ServerUnavailable: the caller is not authenticated, or the user has no login for this server.
    """

    async def credentials(entry: ServerEntry) -> Mapping[str, Any]:
        if entry.url is None or says_who_asks(entry):
            return {}
        if principal is None:
            raise ServerUnavailable(
                f"{entry.name} needs each user's own login, and the caller is not authenticated: serve with auth"
            )
        from trunkline.auth.store import FileStore

        path = store_path(folder, issuer=principal.issuer, subject=principal.subject)
        login = await Logins(FileStore(path)).find(entry)
        if login is None:
            raise ServerUnavailable(
                f"{entry.name} needs a login of {principal.subject}; run: "
                f"trunkline auth login {entry.name} --user {principal.subject}"
            )
        return {"auth": login}

    return credentials
