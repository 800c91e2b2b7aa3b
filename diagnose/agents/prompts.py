"""The texts that a model is given: templates under `prompts/<agent>/`, and the JSON Schema of its answer.

In: the name of an agent, values. Out: rendered texts; which version they are. A value that a template lacks is an
error, never an empty place. Values are put in as they are, and never read as templates.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

from diagnose.agents.answers import Schema
from diagnose.agents.rendering import prompts_directory
from diagnose.errors import UsageError

_VERSION = re.compile(r"\{#-? ?([a-z_]+/\d+)")


class Prompts:
    """The texts of one agent."""

    def __init__(self, agent: str, root: str | None = None) -> None:
        import jinja2

        folder = os.path.join(root or prompts_directory(), agent)
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            undefined=jinja2.StrictUndefined,
            autoescape=False,  # noqa: S701 - plain text for a model; what comes from logs is escaped where it is read
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
        )
        digest = hashlib.sha256()
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith((".j2", ".json")))
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    digest.update(file.read())
            with open(os.path.join(folder, "answer.schema.json"), encoding="utf-8") as file:
                self.schema: Schema = json.load(file)
            with open(os.path.join(folder, "system.md.j2"), encoding="utf-8") as file:
                stated = _VERSION.match(file.readline())
        except (OSError, ValueError) as error:
            raise UsageError(f"the prompts in {folder} cannot be read ({error}): install the package again") from error
        self.version = f"{stated[1] if stated else agent}-{digest.hexdigest()[:8]}"

    def render(self, name: str, **values: Any) -> str:
        """One text with its values."""
        return self._environment.get_template(f"{name}.md.j2").render(**values).strip()
