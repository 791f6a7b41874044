"""The terminal chat of ``trunkline chat``, shared with ``trunkline ask``."""

__all__: list[str] = []
