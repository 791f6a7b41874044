"""The three tools of the shop: plain functions that every Python server of the section registers as they are.

Each reads or writes Redis and calls the HTTP API of `shop_api.py`, both at once where the order does not matter. The
environment says where both are: ``SHOP_REDIS`` and ``SHOP_API``.
"""

import asyncio
import json
import os
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import aiohttp
import redis.asyncio

__all__ = ["TOOLS", "checkout", "get_user_cart", "search_products"]


@dataclass(frozen=True, slots=True)
class Backends:
    """The connections of one process, kept alive between calls."""

    api: aiohttp.ClientSession
    redis: Any

    async def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a resource of the API."""
        async with self.api.get(path, params=query) as response:
            return await response.json()

    async def post(self, path: str, body: Any) -> Any:
        """Send JSON to the API and return its answer."""
        async with self.api.post(path, json=body) as response:
            return await response.json()


@cache
def backends() -> Backends:
    """Return the connections, which are made on first use: then the event loop runs, after any fork."""
    client = redis.asyncio.from_url(os.environ["SHOP_REDIS"], decode_responses=True)
    return Backends(aiohttp.ClientSession(os.environ["SHOP_API"]), client)


async def search_products(
    category: str = "Electronics", min_price: float = 50.0, max_price: float = 500.0, limit: int = 10
) -> str:
    """Search a category by price, and rank the products by popularity."""
    shop = backends()
    result, popular = await asyncio.gather(
        shop.get(
            "/products/search",
            category=category,
            min_price=str(min_price),
            max_price=str(max_price),
            limit=str(limit),
        ),
        shop.redis.zrevrange("shop:popular", 0, 9),
    )
    popular_ids = [int(member) for member in popular]
    ranks = {number: rank for rank, number in enumerate(popular_ids, 1)}
    products = [
        {name: product[name] for name in ("id", "sku", "name", "price", "rating")}
        | {"popularity_rank": ranks.get(product["id"], 0)}
        for product in result["products"]
    ]
    return json.dumps(
        {
            "category": category,
            "total_found": result["total_found"],
            "products": products,
            "popular_ids": popular_ids,
        }
    )


async def get_user_cart(user_id: str) -> str:
    """Return a user's cart, its first product and the last orders."""
    shop = backends()
    cart = await shop.redis.hgetall(f"shop:cart:{user_id}")
    items = json.loads(cart["items"])
    product, orders = await asyncio.gather(
        shop.get(f"/products/{items[0]['product_id']}"), shop.redis.lrange(f"shop:orders:{user_id}", 0, 4)
    )
    return json.dumps(
        {
            "user_id": user_id,
            "items": items,
            "total": float(cart["total"]),
            "first_product": product["name"],
            "recent_orders": [json.loads(order) for order in orders],
        }
    )


async def checkout(user_id: str, items: list[dict[str, int]]) -> str:
    """Price a cart, count the user's orders and record this one."""
    shop = backends()
    order = json.dumps({"user_id": user_id, "items": items, "at": int(time.time())})
    pipeline = shop.redis.pipeline(transaction=False)
    pipeline.incr(f"shop:count:{user_id}")
    pipeline.rpush(f"shop:orders:{user_id}", order)
    pipeline.zincrby("shop:popular", 1, str(items[0]["product_id"]))
    priced, (count, *_) = await asyncio.gather(
        shop.post("/cart/calculate", {"user_id": user_id, "items": items}), pipeline.execute()
    )
    return json.dumps(
        {
            "order_id": priced["order_id"],
            "total": priced["total"],
            "items_count": len(items),
            "orders_count": count,
            "status": "confirmed",
        }
    )


TOOLS = (search_products, get_user_cart, checkout)
