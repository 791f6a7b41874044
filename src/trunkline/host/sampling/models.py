"""The models that may answer servers: those that are open, and those that are opened when one is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trunkline.host.models.interface import Model, Traits
from trunkline.host.models.known import traits_of
from trunkline.host.sampling.choice import names_like

__all__ = ["SamplingModels"]


class SamplingModels:
    """Models by name, in the user's order."""

    def __init__(self, *models: Model, names: Sequence[str] = (), opener: Callable[[str], Model] | None = None) -> None:
        """Take open models, which stay whoever's they are, and names that ``opener`` can open when needed."""
        self._given = {model.name: model for model in models}
        self._opened: dict[str, Model] = {}
        self._opener = opener
        #: The models that answer servers whose entries name none.
        self.names = tuple(dict.fromkeys((*self._given, *(names if opener is not None else ()))))

    def allowed(self, globs: Sequence[str] | None) -> list[str]:
        """Give the names of those that a server may have: of a list of globs, a plain name need not be known yet."""
        if globs is None:
            return list(self.names)
        plain = [glob for glob in globs if self._opener is not None and ":" in glob and not set("*?[") & set(glob)]
        return names_like([*self.names, *plain], globs)

    def traits(self, name: str) -> Traits:
        """Say what a model can do."""
        model = self._given.get(name) or self._opened.get(name)
        return traits_of(name) if model is None else model.traits

    def get(self, name: str) -> Model:
        """Give a model, opened if need be.

        Raises:
            ModelError, ConfigError: it cannot be opened.
        """
        model = self._given.get(name) or self._opened.get(name)
        if model is None:
            assert self._opener is not None
            model = self._opened[name] = self._opener(name)
        return model

    async def aclose(self) -> None:
        """Close those that were opened here."""
        opened, self._opened = self._opened, {}
        for model in opened.values():
            await model.aclose()
