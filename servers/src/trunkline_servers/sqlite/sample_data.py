"""A small sample database: a shop with customers, products and orders, always the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from trunkline.errors import ConfigError

__all__ = ["create_sample"]

_TABLES = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, since DATE NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, price NUMERIC NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    ordered_on DATE NOT NULL,
    status TEXT NOT NULL
);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
"""
_PEOPLE = ("Ada", "Ben", "Chen", "Dana", "Emil", "Fatima", "Goran", "Hana")
_CITIES = ("Oslo", "Paris", "Seville")
_GOODS = (
    ("Espresso cups", "kitchen", 18.5),
    ("Bread knife", "kitchen", 24.0),
    ("Desk lamp", "office", 39.9),
    ("Notebook", "office", 4.2),
    ("Rain jacket", "outdoor", 89.0),
)
_STATES = ("paid", "shipped", "open")
_ORDERS = 24


def create_sample(path: Path) -> bool:
    """Fill a database without tables; return False if it has some, and leave it unchanged.

    Raises:
        ConfigError: the file is not a database, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.execute("ROLLBACK")
                return False
            _fill(connection)
            connection.execute("COMMIT")
            return True
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"--sample: {path} cannot be filled ({error}); give another --db-path") from error


def _fill(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.strip().split(";"):
        connection.execute(statement)
    people = [(name, _CITIES[n % 3], f"201{n}-0{n + 1}-15") for n, name in enumerate(_PEOPLE)]
    connection.executemany("INSERT INTO customers (name, city, since) VALUES (?, ?, ?)", people)
    connection.executemany("INSERT INTO products (name, category, price) VALUES (?, ?, ?)", _GOODS)
    orders = [(1 + n * 5 % len(_PEOPLE), f"2023-{1 + n // 2:02}-{1 + n:02}", _STATES[n % 3]) for n in range(_ORDERS)]
    connection.executemany("INSERT INTO orders (customer_id, ordered_on, status) VALUES (?, ?, ?)", orders)
    items = {(1 + n % _ORDERS, 1 + n * 7 % len(_GOODS)): 1 + n % 3 for n in range(2 * _ORDERS)}
    rows = [(order, product, quantity) for (order, product), quantity in items.items()]
    connection.executemany("INSERT INTO order_items (order_id, product_id, quantity) VALUES (?, ?, ?)", rows)
