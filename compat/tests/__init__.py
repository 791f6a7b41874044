"""Tests of trunkline-compat, and its measure: published servers, and whose text ours is."""
