"""A server in ten lines."""

from trunkline import Server

server = Server("hello")


@server.tool
async def greet(name: str, times: int = 1) -> str:
    """Greet a person."""
    return ", ".join([f"hello {name}"] * times)


if __name__ == "__main__":
    server.run()
