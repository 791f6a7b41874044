"""The servers behind a host: supervision, the catalog of what they offer, and the routing of calls to them."""

__all__: list[str] = []
