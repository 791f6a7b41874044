"""Notes in the audit trail: records of requests to the user's side, which are not performed at a server."""

from __future__ import annotations

import os
from typing import Any

from trunkline.host.audit.trail import AuditEntry
from trunkline.host.policy.acts import Act

__all__ = ["note_of"]


def note_of(act: Act, **more: Any) -> AuditEntry:
    """Build the audit entry for a request to the user's side."""
    return AuditEntry(
        act_id=os.urandom(8).hex(),
        stage="note",
        kind=act.kind,
        server=act.server,
        name=act.name,
        session=act.session,
        principal=act.principal,
        profile=act.profile,
        caller=act.caller,
        **more,
    )
