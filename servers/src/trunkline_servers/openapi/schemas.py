"""Schemas of an OpenAPI document as self-contained JSON Schema 2020-12.

A reference stays a reference: its target goes under ``$defs``, so that cycles stay cycles and a small document cannot
become a large schema. Members for responses only (``readOnly``) are left out of inputs, and vice versa. A schema has a
budget; definitions beyond it are replaced by schemas that accept everything.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trunkline.errors import ConfigError
from trunkline_servers.openapi.document import Document, clean_text
from trunkline_servers.untrusted import as_dict, as_list

__all__ = ["SchemaTranslator"]

_MAX_DEPTH = 40
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NUMBERS = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf")
_COUNTS = (
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
)
_TEXTS = ("title", "description", "format", "contentEncoding", "contentMediaType")
_ONE = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("patternProperties", "dependentSchemas")
#: Keywords that apply to the same value as the schema itself: a cycle of only these never ends.
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
#: Keywords that may reject a value because a subschema accepts it, or does not describe it.
_REJECTING = ("not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties")
_MOST_TEXT = 1000


class SchemaTranslator:
    """Translates the schemas of a document for one direction: tool inputs or tool outputs.

    A definition is translated once and shared by all tools.
    """

    def __init__(self, document: Document, *, inputs: bool, patterns: bool = True) -> None:
        """Initialize with the direction; ``patterns`` keeps regular expressions."""
        self._document = document
        self._unseen = "readOnly" if inputs else "writeOnly"
        self._inputs = inputs
        self._patterns = patterns
        self._names: dict[str, str] = {}
        self._targets: dict[str, Any] = {}
        self._numbers: Counter[str] = Counter()
        self._done: dict[str, Any] = {}
        self._measures: dict[str, tuple[int, Sequence[str]]] = {}
        self._circles = _CycleBreaker(self._definition)

    def schema(self, node: Any, depth: int = 0) -> Any:
        """Translate a schema with its subschemas; ``whole`` adds the definitions that it refers to.

        Raises:
            ConfigError: a reference leaves the document, or schemas are nested too deeply.
        """
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            return {}
        if depth > _MAX_DEPTH:
            raise ConfigError(f"{self._document.name}: a schema is nested deeper than {_MAX_DEPTH} levels")
        if "$ref" in node:
            return self._reference(node, depth)
        return self._nullable(node, self._keywords(node, depth))

    def whole(self, schema: dict[str, Any], *, most: int) -> dict[str, Any]:
        """Return a translated schema with its definitions; beyond ``most`` nodes they accept anything.

        Raises:
            ConfigError: as for ``schema``.
        """
        found, is_cut = self._definitions(schema, most)
        whole = {**schema, "$defs": found} if found else schema
        return whole if self._patterns and not is_cut else _relaxed(whole)

    def _definitions(self, schema: Any, most: int) -> tuple[dict[str, Any], bool]:
        """Return the definitions that a schema needs, directly or not, and whether some were left out."""
        found: dict[str, Any] = {}
        waiting = deque(_references(schema))
        count = _size(schema)
        is_cut = False
        while waiting:
            name = waiting.popleft()
            if name in found or name not in self._targets:
                continue
            size, references = self._measured(name)
            count += size
            if count <= most:
                found[name] = self._definition(name)
                waiting.extend(references)
            else:
                found[name], is_cut = {}, True
        return found, is_cut

    def _measured(self, name: str) -> tuple[int, Sequence[str]]:
        """Return the size of a definition and its references, after breaking its cycles."""
        if name not in self._measures:
            self._circles.enter(name)
            definition = self._definition(name)
            self._measures[name] = _size(definition), tuple(_references(definition))
        return self._measures[name]

    def _definition(self, name: str) -> Any:
        if name not in self._done:
            self._done[name] = self.schema(self._targets[name])
        return self._done[name]

    def hides(self, node: Any) -> bool:
        """Return True if a member is not for this direction."""
        return as_dict(node).get(self._unseen) is True or (
            "$ref" in as_dict(node) and self._document.follow(node, "a member").get(self._unseen) is True
        )

    # --- references --------------------------------------------------------------------------------------------------

    def _reference(self, node: dict[str, Any], depth: int) -> Any:
        document = self._document
        rest = {key: value for key, value in node.items() if key not in ("$ref", "nullable")}
        target: dict[str, Any] = {"$ref": f"#/$defs/{self._defined(node['$ref'])}"}
        if document.is_3_0:
            beside = {"description": text} if (text := clean_text(rest.get("description"), _MOST_TEXT)) else {}
        else:
            beside = self._keywords(rest, depth)
        whole = {**beside, **target}
        return {"anyOf": [whole, {"type": "null"}]} if node.get("nullable") is True else whole

    def _defined(self, reference: Any) -> str:
        """Return the ``$defs`` name of the target of a reference."""
        target = self._document.target(reference, "a schema")
        if isinstance(target, dict) and target.keys() == {"$ref"}:
            # A chain is resolved to its end first: a cycle of bare references has no meaning.
            self._document.follow(target, f"the schema {reference!r}")
        if reference not in self._names:
            last = reference.rpartition("/")[2]
            wish = re.sub(r"[^A-Za-z0-9_.-]+", "_", last)[:60] or "Schema"
            name = self._names[reference] = self._free(wish)
            self._targets[name] = target
        return self._names[reference]

    def _free(self, wish: str) -> str:
        """Return a free name; numbering continues where it stopped, since many definitions may share one name."""
        name = wish
        while name in self._targets:
            self._numbers[wish] += 1
            name = f"{wish}_{self._numbers[wish]}"
        return name

    # --- keywords ----------------------------------------------------------------------------------------------------

    def _keywords(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        found = _plain(node, keep_patterns=self._patterns)
        if self._document.is_3_0:
            _number_bounds(node, found)
        if isinstance(node.get("items"), list):
            node = {**node, "prefixItems": node["items"], "items": True}
        for word in _ONE:
            if isinstance(node.get(word), dict | bool):
                found[word] = self.schema(node[word], depth + 1)
        for word in _MANY:
            if branches := as_list(node.get(word)):
                found[word] = [self._branch(node, word, each, depth + 1) for each in branches]
        for word in _NAMED:
            if (members := as_dict(node.get(word))) and (self._patterns or word != "patternProperties"):
                found[word] = {name: self.schema(each, depth + 1) for name, each in members.items()}
        if not self._patterns and as_dict(node.get("patternProperties")):
            # Otherwise members that the patterns allowed would be rejected as additional.
            found.pop("additionalProperties", None)
        self._properties(node, found, depth)
        if not self._inputs:
            _allow_extra(found)
        return found

    def _properties(self, node: dict[str, Any], found: dict[str, Any], depth: int) -> None:
        """Keep the members of this direction, and drop the others from ``required``."""
        members = as_dict(node.get("properties"))
        hidden = {name for name, each in members.items() if self.hides(each)}
        for branch in as_list(node.get("allOf")):
            hidden |= {name for name, each in as_dict(self._seen(branch).get("properties")).items() if self.hides(each)}
        kept = {name: self.schema(each, depth + 1) for name, each in members.items() if name not in hidden}
        if members:
            found["properties"] = kept
        required = [name for name in as_list(node.get("required")) if isinstance(name, str) and name not in hidden]
        if required:
            found["required"] = list(dict.fromkeys(required))

    def _seen(self, node: Any) -> dict[str, Any]:
        return self._document.follow(node, "a part of a schema") if isinstance(node, dict) else {}

    def _branch(self, node: dict[str, Any], word: str, branch: Any, depth: int) -> Any:
        """Translate an alternative; a discriminator fixes the value of its property there."""
        schema = self.schema(branch, depth)
        discriminator = as_dict(node.get("discriminator"))
        member = discriminator.get("propertyName")
        if word not in ("oneOf", "anyOf") or not isinstance(member, str) or "$ref" not in as_dict(branch):
            return schema
        values = self._discriminated(discriminator, branch["$ref"], member)
        if not values or "$ref" not in schema:
            return schema
        only = {"const": values[0]} if len(values) == 1 else {"enum": values}
        return {**schema, "properties": {member: only}, "required": [member]}

    def _discriminated(self, discriminator: dict[str, Any], reference: str, member: str) -> list[str]:
        """Return the discriminator values that select an alternative."""
        name = reference.rpartition("/")[2]
        mapping = as_dict(discriminator.get("mapping"))
        if named := [value for value, target in mapping.items() if target in (reference, name)]:
            return named
        return [] if mapping or self._says(branch={"$ref": reference}, member=member, seen=set()) else [name]

    def _says(self, branch: Any, member: str, seen: set[int]) -> bool:
        """Return True if an alternative itself lists the values of a member."""
        schema = self._seen(branch)
        if id(schema) in seen:
            return False
        seen.add(id(schema))
        said = self._seen(as_dict(schema.get("properties")).get(member))
        return (
            "enum" in said
            or "const" in said
            or any(self._says(each, member, seen) for each in as_list(schema.get("allOf")))
        )

    def _nullable(self, node: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """Allow null where a 3.0 schema is ``nullable``."""
        if node.get("nullable") is not True or not self._document.is_3_0:
            return found
        if not found.keys() & {"allOf", "anyOf", "oneOf", "not"} and isinstance(found.get("type"), str):
            found["type"] = [found["type"], "null"]
            if "enum" in found and None not in found["enum"]:
                found["enum"] = [*found["enum"], None]
            return found
        return {"anyOf": [found, {"type": "null"}]} if found.keys() - {"title", "description", "default"} else found


# --- parts -----------------------------------------------------------------------------------------------------------


def _plain(node: dict[str, Any], *, keep_patterns: bool) -> dict[str, Any]:
    """Copy the keywords without subschemas, dropping malformed ones."""
    found: dict[str, Any] = {}
    if kind := _type(node.get("type")):
        found["type"] = kind
    found.update({word: text for word in _TEXTS if (text := clean_text(node.get(word), _MOST_TEXT))})
    found.update({word: node[word] for word in _NUMBERS if _is_number(node.get(word))})
    found.update({word: node[word] for word in _COUNTS if _is_count(node.get(word))})
    found.update({word: node[word] for word in ("const", "default") if word in node})
    if as_list(node.get("enum")):
        found["enum"] = node["enum"]
    found.update({word: True for word in ("uniqueItems", "deprecated") if node.get(word) is True})
    if keep_patterns and isinstance(node.get("pattern"), str):
        found["pattern"] = node["pattern"]
    if (needed := as_dict(node.get("dependentRequired"))) and all(isinstance(each, list) for each in needed.values()):
        found["dependentRequired"] = needed
    if found.get("multipleOf", 1) <= 0:
        del found["multipleOf"]
    return found


def _type(kind: Any) -> Any:
    kinds = [each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str) and each in _TYPES]
    return list(dict.fromkeys(kinds)) if isinstance(kind, list) else (kinds[0] if kinds else None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number_bounds(node: dict[str, Any], found: dict[str, Any]) -> None:
    """Turn an exclusive bound into a number: in 3.0 it is a flag beside the bound."""
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if node.get(flag) is True and bound in found:
            found[flag] = found.pop(bound)


def _allow_extra(found: dict[str, Any]) -> None:
    """Allow a response to have additional members and to match several alternatives."""
    if found.get("additionalProperties") is False:
        del found["additionalProperties"]
    _drop_rejecting_keywords(found)


def _drop_rejecting_keywords(found: dict[str, Any]) -> None:
    """Remove keywords that reject a value because a subschema, which was simplified, accepts it."""
    for word in _REJECTING:
        found.pop(word, None)
    if "oneOf" in found:
        forms = found.pop("oneOf")
        if "anyOf" in found:
            found["allOf"] = [*found.get("allOf", ()), {"anyOf": forms}]
        else:
            found["anyOf"] = forms


def _relaxed(schema: Any) -> Any:
    """Return a copy of a schema with left-out parts that rejects nothing because of them."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for word in _ONE:
        if word in found:
            found[word] = _relaxed(found[word])
    for word in _MANY:
        if word in found:
            found[word] = [_relaxed(each) for each in found[word]]
    for word in (*_NAMED, "properties", "$defs"):
        if word in found:
            found[word] = {name: _relaxed(each) for name, each in found[word].items()}
    _drop_rejecting_keywords(found)
    return found


class _CycleBreaker:
    """Removes references that make a definition part of itself, such as a parent that lists its own subtypes.

    A removed reference accepts everything: a schema that must be applied before itself can validate no value.
    """

    def __init__(self, definition: Callable[[str], Any]) -> None:
        self._definition = definition
        #: Whether a reference was removed, by definition visited; None while the visit is in progress.
        self._seen: dict[str, bool | None] = {}

    def enter(self, name: str) -> bool:
        """Break the cycles of a definition; return True if a reference in it was removed."""
        if name not in self._seen:
            self._seen[name] = None
            self._seen[name] = self._walk(self._definition(name))
        return bool(self._seen[name])

    def _walk(self, schema: Any) -> bool:
        """Visit the subschemas that apply to the same value; return True if a reference was removed."""
        if not isinstance(schema, dict):
            return False
        parts = [part for word in _IN_PLACE for part in _listed(schema.get(word))]
        cuts = [self._walk(part) for part in parts]
        is_cut = any(cuts)
        if is_cut:
            _drop_rejecting_keywords(schema)
        if isinstance(schema.get("$ref"), str):
            name = schema["$ref"].removeprefix("#/$defs/")
            if self._seen.get(name, False) is None:
                del schema["$ref"]
                return True
            is_cut = self.enter(name) or is_cut
        return is_cut


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a translated schema refers to."""
    for node in _nodes(schema):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix("#/$defs/")


def _size(schema: Any) -> int:
    """Count the objects of a schema; long lists and texts count as additional objects."""
    return sum(1 + sum(_weight(value) for value in node.values()) for node in _nodes(schema))


def _weight(value: Any) -> int:
    if isinstance(value, list):
        return len(value) // 20
    return len(value) // 2000 if isinstance(value, str) else 0


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
