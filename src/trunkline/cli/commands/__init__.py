"""One module per command; each has a click command called ``command``."""

__all__: list[str] = []
