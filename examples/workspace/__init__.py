"""A workspace with every reference server in it."""
