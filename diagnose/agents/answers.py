"""What a model's answer says, read as JSON and held against its schema.

In: the text of an answer, a JSON Schema. Out: the object, or None where there is none that fits. Nothing is guessed:
prose around the object is passed over, but the object itself must be whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]  # a JSON Schema, as its file has it
Json = Mapping[str, Any]  # an object that fits it

_TRIES = 20
_THOUGHT = "</think>"  # what reasoning models leave before their answer


def object_of(text: str, schema: Schema) -> Json | None:
    """The first object in a text that fits the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

    validator = Draft202012Validator(dict(schema))
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    text = text.rpartition(_THOUGHT)[2]
    start = text.find("{")
    for _ in range(_TRIES):
        if start < 0:
            return None
        end = start + 1
        try:
            found, end = decoder.raw_decode(text, start)
            if isinstance(found, dict):
                validator.validate(found)
                return found
        except (ValueError, RecursionError, ValidationError):
            pass
        start = text.find("{", end)
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
