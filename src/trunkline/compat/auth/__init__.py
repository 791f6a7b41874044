"""The auth classes of the official SDK and of FastMCP.

Providers, token verifiers, the endpoints of an authorization server, a proxy to identity providers, and the providers
of named services. Signatures are verified by the libraries that ``trunkline.auth`` uses; requests are served by our
endpoint, in front of which stands the middleware that both frameworks have. Nothing here is imported unless compat is
installed in the process.
"""

from __future__ import annotations

__all__: list[str] = []
