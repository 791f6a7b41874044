"""What a client declared about itself, as handlers see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trunkline.types as t
from trunkline.protocol.caller import Caller
from trunkline.protocol.extensions import declared_extension, require_extension
from trunkline.protocol.revisions import Feature

__all__ = ["ClientView"]


class ClientView:
    """What the client declared about itself; for display and fallbacks, never for security decisions."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        """Create a view of a caller."""
        self._caller = caller

    @property
    def info(self) -> t.Implementation | None:
        """The client's name and version, if it sent them."""
        return self._caller.client_info

    @property
    def name(self) -> str | None:
        """The client's name, if it sent one."""
        return None if self.info is None else self.info.name

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared and the revision has, including unknown ones."""
        return self._caller.capabilities

    @property
    def revision(self) -> str:
        """The protocol revision of this request."""
        return self._caller.revision.name

    def supports(self, capability: str) -> bool:
        """Return True if the client declared a capability, such as ``elicitation``, and the revision has it."""
        return self._caller.supports(capability)

    def extension(self, id: str) -> Mapping[str, Any] | None:
        """Return the settings that the client declared for an extension; None if it did not declare it."""
        return declared_extension(self._caller.capabilities, id)

    def require_extension(self, id: str) -> Mapping[str, Any]:
        """Return the settings that the client declared for an extension.

        Raises:
            MissingClientCapability: it did not declare it; the request fails with -32021, which names the extension.
        """
        return require_extension(self._caller.capabilities, id)

    @property
    def knows_url_elicitation_error(self) -> bool:
        """Whether the revision has the error that asks the user to open a URL (``UrlElicitationRequired``)."""
        return Feature.URL_ELICITATION_ERROR in self._caller.revision.features
