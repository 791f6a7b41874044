"""The command line: one module per command in ``commands``, registered by ``main``. It may import every other layer."""

__all__: list[str] = []
