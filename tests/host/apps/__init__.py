"""Tests of what is taken from and put into other applications."""
