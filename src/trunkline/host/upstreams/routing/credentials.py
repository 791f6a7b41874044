"""Per-user credentials: a server used on behalf of several users gets only the credentials of the calling user.

The logins of a user are in a separate store, found by the identity from the gateway's authentication.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trunkline.errors import ServerUnavailable
from trunkline.host.config.model import ServerEntry
from trunkline.host.upstreams.routing.connection_pool import Credentials
from trunkline.host.upstreams.supervision.clients import StoredLogins, has_authorization_header
from trunkline.protocol.caller import Principal

__all__ = ["user_credentials", "user_store_path"]


def user_store_path(folder: Path, *, issuer: str | None, subject: str) -> Path:
    """Return the path of a user's logins: a digest, which reveals no user and prevents path injection."""
    name = hashlib.sha256(f"{issuer or ''}\0{subject}".encode()).hexdigest()[:32]
    return folder / "users" / name / "logins"


def user_credentials(folder: Path, principal: Principal | None) -> Credentials:
    """Return the credentials of one user, as a function of a server's entry.

    Raises (when called):
        ServerUnavailable: the caller is not authenticated, or the user has no login for this server.
    """

    async def credentials(entry: ServerEntry) -> Mapping[str, Any]:
        if entry.url is None or has_authorization_header(entry):
            return {}
        if principal is None:
            raise ServerUnavailable(
                f"{entry.name} needs each user's own login, and the caller is not authenticated: serve with auth"
            )
        from trunkline.auth.credential_store import FileStore

        path = user_store_path(folder, issuer=principal.issuer, subject=principal.subject)
        login = await StoredLogins(FileStore(path)).find(entry)
        if login is None:
            raise ServerUnavailable(
                f"{entry.name} needs a login of {principal.subject}; run: "
                f"trunkline auth login {entry.name} --user {principal.subject}"
            )
        return {"auth": login}

    return credentials
