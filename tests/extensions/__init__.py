"""Tests of the extensions that come with Trunkline."""
