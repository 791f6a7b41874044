"""One handler for both eras: it asks in sequence, in a loop and concurrently, and pays once.

In handshake revisions a question is a request to the client and the function simply waits. In stateless revisions the
function runs again from its start when the answers have arrived, and each question that was answered returns at once;
what must not happen twice is in ``ctx.once``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from trunkline import Context, Server

server = Server("pizzeria", version="1.0.0")

#: Stands for the payment provider of a real server.
charges: list[str] = []


@dataclass
class Size:
    """The form of the first question."""

    size: Literal["small", "large"]
    pieces: int = 1


async def charge(amount: str) -> str:
    """Charge the amount and return the number of the receipt."""
    charges.append(amount)
    return f"R-{len(charges)}"


@server.tool
async def order(ctx: Context) -> str:
    """Order a pizza: asks for the size, then for each topping, then for name and floor concurrently."""
    size = await ctx.elicit("Which size?", Size)
    if not size.accepted:
        return "Nothing ordered."

    toppings: list[str] = []
    for number in range(1, 3):
        topping = await ctx.elicit(f"Topping {number}?", ["cheese", "ham", "olives"])
        if topping.accepted:
            toppings.append(topping.data)

    receipt = await ctx.once("charge", charge, f"{size.data.pieces} {size.data.size}")

    name, floor = await asyncio.gather(ctx.elicit("Your name?", str), ctx.elicit("Which floor?", int))
    pizza = f"{size.data.pieces} {size.data.size} with {' and '.join(toppings)}"
    return f"{pizza} for {name.data}, floor {floor.data}, receipt {receipt}"


if __name__ == "__main__":
    server.run()
