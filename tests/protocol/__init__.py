"""The tests of the sans-IO protocol layer, one file per module."""
