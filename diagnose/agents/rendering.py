"""Prompts as files: templates that are told everything they use, and the schemas of the answers.

In: the name of an agent, the name of a part, values. Out: the text to send; the JSON Schema beside it. Values are data:
nothing in them is read as a template.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def prompts_directory() -> str:
    """The prompts that come with the program: inside the installed package, else beside it."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "shipped", "prompts")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "prompts")


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(prompts_directory()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - plain text for a model, no page
    )


def rendered(agent: str, part: str, **values: object) -> str:
    """A part of an agent's prompt with its values filled in."""
    return _environment().get_template(f"{agent}/{part}.md.j2").render(**values)


@cache
def answer_schema(agent: str, part: str = "answer") -> Mapping[str, Any]:
    """The JSON Schema of an agent's answer."""
    with open(os.path.join(prompts_directory(), agent, f"{part}.schema.json"), encoding="utf-8") as file:
        schema: Mapping[str, Any] = json.load(file)
    return schema
