"""Whole conversations, one file each, replayed through the core."""
