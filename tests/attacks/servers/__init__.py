"""Hostile servers, as programs."""
