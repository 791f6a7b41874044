"""The HTTP API behind the shop: a catalogue of 100,000 products and the price of a cart. Argument: the port.

It stands for a service that somebody else runs, so it costs as little as it can: products are computed from their
number, a search is sorted once and then remembered, and requests are parsed by hand.
"""

import asyncio
import json
import sys
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import uvloop

PRODUCTS = 100_000
CATEGORIES = (
    *("Electronics", "Audio", "Books", "Camping", "Cycling", "Fabric", "Furniture", "Garden", "Glass", "Kitchen"),
    *("Lamps", "Maps", "Paint", "Paper", "Pottery", "Shoes", "Stationery", "Tea", "Tools", "Toys"),
)
BRANDS = ("Ardent", "Birch", "Cobalt", "Dune", "Ember", "Fjord", "Grove", "Harbor", "Inlet", "Juniper", "Kestrel")
LABELS = ("new", "sale", "local", "rare", "gift", "large", "small")
TAX = 0.08
SHIPPING = 4.5


def product(number: int) -> dict[str, Any]:
    """Return a product of the catalogue."""
    category, brand = CATEGORIES[number % len(CATEGORIES)], BRANDS[number % len(BRANDS)]
    return {
        "id": number,
        "sku": f"{brand[:3].upper()}-{number:06}",
        "name": f"{brand} {category} {number}",
        "category": category,
        "brand": brand,
        "price": price(number),
        "stock": number % 400,
        "rating": 1 + number % 41 / 10,
        "tags": [LABELS[number % 7], LABELS[number % 5]],
        "weight": number % 90 / 10,
        "description": f"{category} made by {brand}, number {number:06} of the catalogue.",
    }


def price(number: int) -> float:
    """Return the price of a product."""
    return 1 + number * 37 % 99_900 / 100


@cache
def search(query: str) -> bytes:
    """Return the cheapest products of a category within a range of prices."""
    wanted = dict(parse_qsl(query))
    low, high = float(wanted["min_price"]), float(wanted["max_price"])
    members = range(CATEGORIES.index(wanted["category"]), PRODUCTS, len(CATEGORIES))
    matching = sorted((number for number in members if low <= price(number) <= high), key=price)
    products = [product(number) for number in matching[: int(wanted["limit"])]]
    return json.dumps({"total_found": len(matching), "products": products}).encode()


def calculate(body: bytes) -> bytes:
    """Return what a cart costs."""
    cart = json.loads(body)
    subtotal = sum(price(item["product_id"]) * item["quantity"] for item in cart["items"])
    tax = subtotal * TAX
    order = f"ORDER-{cart['user_id']}"
    total = round(subtotal + tax + SHIPPING, 2)
    return json.dumps(
        {"order_id": order, "subtotal": subtotal, "tax": tax, "shipping": SHIPPING, "total": total}
    ).encode()


def respond(target: str, body: bytes) -> bytes:
    """Return the body of the response to a request."""
    path, _, query = target.partition("?")
    if path == "/products/search":
        return search(query)
    if path == "/cart/calculate":
        return calculate(body)
    return json.dumps(product(int(path.removeprefix("/products/")))).encode()


class Connection(asyncio.Protocol):
    """One kept-alive connection of a client that sends one request at a time."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the responses."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Respond once the request is complete."""
        self._received += data
        head, complete, body = self._received.partition(b"\r\n\r\n")
        if not complete:
            return
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        if len(body) < int(headers.get("content-length", "0")):
            return
        self._received = b""
        response = respond(lines[0].split()[1], body)
        start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(response)}\r\n\r\n"
        self._transport.write(start.encode() + response)


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
