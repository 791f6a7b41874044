"""A set of texts in their order, in which adding and removing cost the same however many there are.

The texts lie in blocks of bounded size: an insertion moves the pointers of one block, never those of the whole set.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

__all__ = ["SortedNames"]

#: A block of more texts is split in two; one of fewer than a quarter is merged with its neighbour.
_BLOCK = 256


class SortedNames:
    """Texts in their order; the caller knows which of them are members."""

    __slots__ = ("_blocks", "_greatest")

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Start with these texts, each once."""
        ordered = sorted(names)
        self._blocks: list[list[str]] = [ordered[start : start + _BLOCK] for start in range(0, len(ordered), _BLOCK)]
        #: The last text of each block, to find the block of a text by bisection.
        self._greatest: list[str] = [block[-1] for block in self._blocks]

    def add(self, name: str) -> None:
        """Add a text that is not a member."""
        greatest, blocks = self._greatest, self._blocks
        position = bisect_left(greatest, name)
        if position < len(blocks):
            block = blocks[position]
            insort(block, name)
        elif blocks:
            position -= 1
            block = blocks[position]
            block.append(name)
            greatest[position] = name
        else:
            blocks.append([name])
            greatest.append(name)
            return
        if len(block) > _BLOCK:
            self._split(position)

    def remove(self, name: str) -> None:
        """Remove a member."""
        position = bisect_left(self._greatest, name)
        block = self._blocks[position]
        del block[bisect_left(block, name)]
        if not block:
            del self._blocks[position], self._greatest[position]
        else:
            self._greatest[position] = block[-1]
            if len(block) < _BLOCK // 4:
                self._merge(position)

    def after(self, name: str) -> Iterator[str]:
        """Return the members after a text; nothing may be added or removed meanwhile."""
        blocks = self._blocks
        position = bisect_right(self._greatest, name)
        if position < len(blocks):
            block = blocks[position]
            for index in range(bisect_right(block, name), len(block)):
                yield block[index]
            for index in range(position + 1, len(blocks)):
                yield from blocks[index]

    def _split(self, position: int) -> None:
        block = self._blocks[position]
        # Texts that sort by time are added at the end: then the first block stays full.
        middle = _BLOCK if position == len(self._blocks) - 1 else _BLOCK // 2
        self._blocks.insert(position + 1, block[middle:])
        self._greatest.insert(position, block[middle - 1])
        del block[middle:]

    def _merge(self, position: int) -> None:
        """Append a small block to the one before it, or the next to it, if both are small enough together."""
        first = position - 1 if position else position
        if first + 1 < len(self._blocks) and len(self._blocks[first]) + len(self._blocks[first + 1]) <= _BLOCK:
            self._blocks[first] += self._blocks.pop(first + 1)
            del self._greatest[first]
