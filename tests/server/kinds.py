"""Types of the parameters and results in tests of signatures."""

import enum
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import msgspec

__all__ = ["Cat", "Dog", "Filter", "First", "Level", "Opaque", "Options", "Pair", "Second"]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Filter:
    name: str
    limit: int = 10


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: int


class Pair(NamedTuple):
    a: int
    b: str


class Options(TypedDict, total=False):
    depth: int


@dataclass
class First:
    a: int


@dataclass
class Second:
    b: int


class Opaque:
    """Neither msgspec nor pydantic knows what it holds."""
