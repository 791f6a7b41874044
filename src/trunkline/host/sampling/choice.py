"""The choice of the model for a sampling request: the server's preferences, mapped to the models that it may use.

Hints are substrings of names, tried in order; the first that matches any model limits the choice to those. Among them
the server's priorities are weighed against what is known about each model; ties keep the user's order. The same request
gets the same model, and the reasons can be shown. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

import trunkline.types as t
from trunkline.host.models.interface import Traits

__all__ = ["Choice", "choose_by_wishes", "names_like", "wishes_text"]


class Choice(Struct, frozen=True):
    """The chosen model, and the reasons, a sentence each."""

    name: str
    why: tuple[str, ...]


def choose_by_wishes(models: Mapping[str, Traits], wishes: t.ModelPreferences | None) -> Choice:
    """Choose one of the models, which are in the user's order; there is at least one."""
    names, why = list(models), []
    if len(names) == 1:
        return Choice(names[0], ("it is the only one that may answer",))
    hints = [hint.name for hint in (wishes.hints if wishes else None) or () if hint.name]
    for hint in hints:
        fitting = [name for name in names if hint.lower() in name.lower()]
        if fitting:
            names = fitting
            why.append(f"the hint {hint!r} is in its name")
            break
        why.append(f"the hint {hint!r} is in no name")
    weights = _weights(wishes)
    if len(names) > 1 and weights:
        scores = _scores({name: models[name] for name in names}, weights)
        best = max(names, key=lambda name: scores[name])
        said = ", ".join(f"{word} {weight:g}" for word, weight in weights.items())
        return Choice(best, (*why, f"it fits the priorities best ({said})"))
    if len(names) > 1 or not why:
        why.append("it is the first in the user's order")
    return Choice(names[0], tuple(why))


def wishes_text(wishes: t.ModelPreferences | None) -> str:
    """Describe a server's preferences for people."""
    hints = [hint.name for hint in (wishes.hints if wishes else None) or () if hint.name]
    said = [f"{word} {weight:g}" for word, weight in _weights(wishes).items()]
    return "; ".join(part for part in (f"hints: {', '.join(hints)}" if hints else "", ", ".join(said)) if part)


def _weights(wishes: t.ModelPreferences | None) -> dict[str, float]:
    if wishes is None:
        return {}
    given = {
        "cost": wishes.cost_priority,
        "speed": wishes.speed_priority,
        "intelligence": wishes.intelligence_priority,
    }
    return {word: min(1.0, float(weight)) for word, weight in given.items() if weight is not None and weight > 0}


def _scores(models: Mapping[str, Traits], weights: Mapping[str, float]) -> dict[str, float]:
    prices = {name: _price(traits) for name, traits in models.items()}
    dearest = max((price for price in prices.values() if price is not None), default=0.0)
    scores = {}
    for name, traits in models.items():
        price = prices[name]
        # A model with an unknown price is not considered cheap.
        cheap = 0.0 if price is None else 1.0 if not dearest else 1.0 - price / dearest
        known = {"cost": cheap, "speed": traits.speed, "intelligence": traits.intelligence}
        scores[name] = sum(weight * known[word] for word, weight in weights.items())
    return scores


def _price(traits: Traits) -> float | None:
    if traits.input_price is None or traits.output_price is None:
        return None
    return traits.input_price + traits.output_price


def names_like(names: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Return the names that match a glob, in the order of the globs."""
    from fnmatch import fnmatchcase

    return list(dict.fromkeys(name for glob in globs for name in names if fnmatchcase(name, glob)))
