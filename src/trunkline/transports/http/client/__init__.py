"""The client's side of HTTP; it imports nothing, so that each part is loaded when it is used."""

__all__: list[str] = []
