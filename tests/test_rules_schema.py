"""The committed JSON Schemas are those of the code, and they accept what the loader accepts."""

from __future__ import annotations

import json
import os

import pytest
import yaml
from jsonschema import Draft202012Validator

from diagnose.rules.schema import SCHEMAS, schema_of
from diagnose.rules.tree import shipped_rules

COMMITTED = os.path.join(shipped_rules(), "schemas")


@pytest.mark.parametrize("name", SCHEMAS)
def test_committed_schemas_are_current(name):
    with open(os.path.join(COMMITTED, f"{name}.json"), encoding="utf-8") as file:
        assert json.load(file) == schema_of(name)


def test_nothing_else_is_committed():
    assert {name.removesuffix(".json") for name in os.listdir(COMMITTED)} == set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid_and_describe(name):
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    assert schema["description"]
    assert schema["additionalProperties"] is False


def plain(path: str) -> object:
    """A file as JSON has it: every plain scalar that is no number or flag is text, as the loader reads it."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if not tag.endswith(("timestamp", "merge"))]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    with open(path, encoding="utf-8") as file:
        return json.loads(json.dumps(yaml.load(file, Loader=Loader)))


def test_every_shipped_file_is_valid_by_its_schema(rule_set):
    validators = {name: Draft202012Validator(schema_of(name)) for name in SCHEMAS}
    kinds = {"taxonomy": "taxonomy", "tags": "tags", "policy": "policy", "programs/nccl": "programs"}
    kinds |= {rule.id: rule.schema.partition("/")[0] for rule in (*rule_set.diagnoses[::5], *rule_set.filters[::5])}
    kinds |= {f"tables/{name}": "table" for name in rule_set.tables}
    for key, kind in kinds.items():
        errors = [error.message for error in validators[kind].iter_errors(plain(rule_set.paths[key]))]
        assert errors == [], key


def test_an_unknown_key_is_refused():
    assert not Draft202012Validator(schema_of("tags")).is_valid({"schema": "tags/v1", "tags": {}, "tag": {}})
