"""Servers that tests run as programs."""
