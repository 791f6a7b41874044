"""Notes of the audit trail: what is recorded of an act that is asked of the user's side, and not done at a server."""

from __future__ import annotations

import os
from typing import Any

from trunkline.host.audit.trail import AuditEntry
from trunkline.host.policy.acts import Act

__all__ = ["note_of"]


def note_of(act: Act, **more: Any) -> AuditEntry:
    """Write who asks what of whom, and what else is told of it."""
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
