"""The section `shop`: a server with three tools over Redis and an HTTP API, used by 50 users in short sessions.

The work follows the public cross-language benchmark of MCP servers by TM Dev Lab (v2); what differs is on the page
`docs/explanation/benchmark-shop.md`. Redis, the API, the users and the server are processes of their own on loopback.
Each measurement starts all of them anew, so that no server finds what another has written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from statistics import quantiles
from typing import TYPE_CHECKING

from benchmarks.driver import ServerFailed, complaint
from benchmarks.http_driver import HttpServer
from benchmarks.measures import Row, Sample
from benchmarks.scaled_server import Redis, redis_server
from benchmarks.shop_load import EXTRA_SECONDS, MIN_CALLS, Load, Report
from benchmarks.subjects import HERE, ROOT

if TYPE_CHECKING:
    from benchmarks.measures import Budget
    from benchmarks.subjects import Installed

__all__ = ["COUNTED", "USERS", "measure_shop"]

USERS = 50
COUNTED = "counted request"
PRODUCTS = 100_000
ORDERS_EACH = 20
#: After the users were told to stop: as long as one request may take, and some.
LOAD_SECONDS = 60.0


def measure_shop(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure the server of a subject in use.

    Raises:
        ServerFailed: A response was missing or wrong.
    """
    # In memory only: what Redis costs is not the question.
    with redis_server("--appendonly", "no") as redis:
        _fill(redis)
        own = {"PYTHONPATH": str(ROOT)}
        with HttpServer([sys.executable, str(HERE / "servers" / "shop_api.py")], env=subject.environ(**own)) as api:
            shop = {"SHOP_REDIS": redis.url, "SHOP_API": f"http://127.0.0.1:{api.port}"}
            with HttpServer(subject.server_command(), env=subject.environ(**own, **shop)) as server:
                processes = {"server": server.pid, "redis": redis.pid, "api": api.pid}
                load = Load(server.port, USERS, budget.shop_warm, subject.subject.warm_requests, budget.shop, processes)
                report = _load(server, load)
    yield Sample(Row("shop", COUNTED, revision, USERS), _figures(report))


def _figures(report: Report) -> dict[str, float]:
    shares = quantiles(report.call_ms, n=100)
    return {
        "rate": report.counted / report.seconds,
        "cpu_us": report.cpu_ns["server"] / report.counted / 1000,
        "p50_ms": shares[49],
        "p99_ms": shares[98],
        "server_cores": report.cpu_ns["server"] / report.seconds / 1e9,
        "users_cores": report.driver_ns / report.seconds / 1e9,
        "backend_cores": (report.cpu_ns["redis"] + report.cpu_ns["api"]) / report.seconds / 1e9,
        "errors": float(report.errors),
    }


def _load(server: HttpServer, load: Load) -> Report:
    command = [sys.executable, str(HERE / "shop_load.py"), json.dumps(asdict(load))]
    try:
        done = subprocess.run(
            command,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=load.warm + load.seconds + 2 * EXTRA_SECONDS + LOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise server.failure("kept the users waiting") from None
    if done.returncode != 0:
        raise ServerFailed(f"the users ended with status {done.returncode}: {complaint(done.stderr)}")
    report = Report(**json.loads(done.stdout))
    if report.errors or len(report.call_ms) < MIN_CALLS:
        raise server.failure(f"gave {report.errors} errors, the first one {report.first_error!r}")
    if report.warmed < load.warm_requests:
        # A figure of code that is not compiled yet would be held against it.
        raise server.failure(f"served {report.warmed} of {load.warm_requests} requests until it was to be measured")
    return report


def _fill(redis: Redis) -> None:
    """Store what the tools read: a cart and orders of each user, and how popular each product is."""
    with redis.client() as client, client.pipeline(transaction=False) as pipeline:
        for number in range(1, USERS + 1):
            user = f"user-{number:05}"
            items = [{"product_id": number * factor % PRODUCTS, "quantity": 1 + number % 3} for factor in (7, 13)]
            cart = {"user_id": user, "items": json.dumps(items), "total": str(number * 1.5), "created": "1790000000"}
            pipeline.hset(f"shop:cart:{user}", mapping=cart)
            orders = (json.dumps({"user_id": user, "items": items, "at": at}) for at in range(ORDERS_EACH))
            pipeline.rpush(f"shop:orders:{user}", *orders)
        pipeline.zadd("shop:popular", {str(number): number * 7 % 10_000 for number in range(PRODUCTS)})
        pipeline.execute()
