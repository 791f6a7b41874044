"""Servers of other frameworks, run unchanged."""
