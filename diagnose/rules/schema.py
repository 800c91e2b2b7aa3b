"""JSON Schemas (draft 2020-12) of rule files, generated from the dataclasses they decode into.

In: nothing. Out: `SCHEMAS`, the kinds by name, and `schema_of(name)`. The same schemas are committed under
`rules/schemas/` for editors; a test holds them to the code.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, Literal, Union, get_args, get_origin

from diagnose.models.rule import DiagnosisRule, Edge, FilterRule, RedactionRule
from diagnose.rules.files import PolicyFile, ProgramsFile, TableFile, TagsFile, TaxonomyFile

SCHEMAS: Final[Mapping[str, type]] = {
    "diagnosis-rule": DiagnosisRule,
    "filter-rule": FilterRule,
    "redaction-rule": RedactionRule,
    "table": TableFile,
    "policy": PolicyFile,
    "taxonomy": TaxonomyFile,
    "tags": TagsFile,
    "programs": ProgramsFile,
}
_PLAIN: Final[Mapping[object, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}
# Filled in by the loader from where the value stands, so that files need not (and may not) say them again.
_IMPLIED: Final[Mapping[str, frozenset[str]]] = {"TableRow": frozenset({"key"}), "Program": frozenset({"key"})}

Schema = dict[str, Any]


def schema_of(name: str) -> Schema:
    """The schema of a kind of file; raises KeyError for an unknown name."""
    definitions: dict[str, Schema] = {}
    root = _object(SCHEMAS[name], definitions)
    made: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **root}
    if definitions:
        made["$defs"] = dict(sorted(definitions.items()))
    return made


def _object(kind: type, definitions: dict[str, Schema]) -> Schema:
    hints = typing.get_type_hints(kind)
    implied = _IMPLIED.get(kind.__name__, frozenset())
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in fields(kind):
        if field.name in implied:
            continue
        properties[field.name] = _value(hints[field.name], definitions)
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(field.name)
    made: Schema = {"type": "object", "description": " ".join((kind.__doc__ or "").split())}
    made |= {"properties": properties, "additionalProperties": False}
    if required:
        made["required"] = required
    return made


def _value(hint: Any, definitions: dict[str, Schema]) -> Schema:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        ways = [_value(argument, definitions) for argument in arguments if argument is not type(None)]
        return ways[0] if len(ways) == 1 else {"anyOf": ways}
    if origin is tuple:
        return {"type": "array", "items": _value(arguments[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(arguments[1], definitions)}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _object(hint, definitions)
        reference: Schema = {"$ref": f"#/$defs/{hint.__name__}"}
        # An edge without a scope may be written as its pattern alone.
        return {"anyOf": [{"type": "string"}, reference]} if hint is Edge else reference
    return {}
