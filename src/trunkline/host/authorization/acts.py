"""The act that the policy decides about, built in one place from an item, an unlisted name or a server request.

Lists, completions, approvals and calls all judge the same item. If each of them described it in its own way, a rule
could hide an item and still allow its use, so every judgement of something real starts here. Acts that a person
describes by hand (``policy test``, ``policy why``, ``grants allow``) are written as a plain ``Act``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trunkline.host.authorization.policy.decisions import NO_HINTS, Act, ActKind
from trunkline.host.config.model import ServerEntry
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.items import CatalogItem

__all__ = ["act_for_item", "act_for_server_request", "act_for_unlisted"]


def act_for_item(
    item: CatalogItem,
    *,
    caller: str,
    session: HostSession | None = None,
    principal: str | None = None,
    profile: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    uri: str | None = None,
    trusted: bool | None = None,
) -> Act:
    """Return the use of a catalog item as an act; without ``arguments``, any use of it.

    Args:
        item: The item.
        caller: ``model``, ``user`` or ``gateway``.
        session: The session of the call, with its principal, profile and taint. None for a list that is the same in
            every session: then ``principal`` and ``profile`` count, and nothing is tainted.
        principal: The authenticated subject, if there is no session.
        profile: The gateway profile, if there is no session.
        arguments: The arguments as they will be sent.
        uri: The URI to read, if the item is a template.
        trusted: Whether the server is trusted now, if its entry may be newer than the catalog.
    """
    name = item.name if uri is None else uri
    return Act(
        kind="resource" if item.kind == "template" else item.kind,
        server=item.server,
        name=name,
        arguments=arguments,
        annotations=item.annotations,
        pin=item.pin,
        trusted=item.trusted if trusted is None else trusted,
        tainted=session is not None and session.taint.affects(item.server, name, hints=item.annotations),
        flagged=bool(item.flagged),
        changed=bool(item.changed),
        caller=caller,
        principal=principal if session is None else session.subject,
        session=None if session is None else session.id,
        profile=profile if session is None else session.profile,
    )


def act_for_unlisted(
    kind: ActKind,
    server: str,
    name: str,
    *,
    caller: str,
    trusted: bool,
    session: HostSession | None = None,
    principal: str | None = None,
    profile: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Act:
    """Return the use of something that a server does not list as an act; only its name and its server are known."""
    return Act(
        kind=kind,
        server=server,
        name=name,
        arguments=arguments,
        annotations=NO_HINTS,
        trusted=trusted,
        tainted=session is not None and session.taint.affects(server, name),
        caller=caller,
        principal=principal if session is None else session.subject,
        session=None if session is None else session.id,
        profile=profile if session is None else session.profile,
    )


def act_for_server_request(
    entry: ServerEntry, method: str, params: Any, session: HostSession, *, name: str | None = None
) -> Act:
    """Return a request of a server as an act; its name is the method unless another is given."""
    kind: Any = method.partition("/")[0]
    return act_for_unlisted(
        kind,
        entry.name,
        name or method,
        caller="server",
        trusted=entry.settings.trusted,
        session=session,
        arguments=msgspec.to_builtins(params),
    )
