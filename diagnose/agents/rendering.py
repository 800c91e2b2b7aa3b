"""Where prompts are, and the schemas of answers beside them.

In: the name of an agent and of a part. Out: the JSON Schema of that answer. `prompts` renders the texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any


def prompts_directory() -> str:
    """The prompts that come with the program: inside the installed package, else beside it."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "shipped", "prompts")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "prompts")


@cache
def answer_schema(agent: str, part: str = "answer") -> Mapping[str, Any]:
    """The JSON Schema of an agent's answer."""
    with open(os.path.join(prompts_directory(), agent, f"{part}.schema.json"), encoding="utf-8") as file:
        schema: Mapping[str, Any] = json.load(file)
    return schema
