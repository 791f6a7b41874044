"""The models that may answer servers: open ones, and ones that are opened when first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trunkline.host.models.interface import Model, Traits
from trunkline.host.models.known import traits_of
from trunkline.host.sampling.choice import names_like

__all__ = ["SamplingModels"]


class SamplingModels:
    """Models by name, in the user's order."""

    def __init__(self, *models: Model, names: Sequence[str] = (), opener: Callable[[str], Model] | None = None) -> None:
        """Use open models, which the caller closes, and names that ``opener`` opens when needed."""
        self._given = {model.name: model for model in models}
        self._opened: dict[str, Model] = {}
        self._opener = opener
        #: The models for servers whose entries name none.
        self.names = tuple(dict.fromkeys((*self._given, *(names if opener is not None else ()))))

    def allowed(self, globs: Sequence[str] | None) -> list[str]:
        """Return the names of the models that a server may use; a literal name in ``globs`` need not be known yet."""
        if globs is None:
            return list(self.names)
        plain = [glob for glob in globs if self._opener is not None and ":" in glob and not set("*?[") & set(glob)]
        return names_like([*self.names, *plain], globs)

    def traits(self, name: str) -> Traits:
        """Return the traits of a model."""
        model = self._given.get(name) or self._opened.get(name)
        return traits_of(name) if model is None else model.traits

    def get(self, name: str) -> Model:
        """Return a model, opened if needed.

        Raises:
            ModelError, ConfigError: it cannot be opened.
        """
        model = self._given.get(name) or self._opened.get(name)
        if model is None:
            assert self._opener is not None
            model = self._opened[name] = self._opener(name)
        return model

    async def aclose(self) -> None:
        """Close the models that were opened here."""
        opened, self._opened = self._opened, {}
        for model in opened.values():
            await model.aclose()
