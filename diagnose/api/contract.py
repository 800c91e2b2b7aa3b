"""The contract as a document: OpenAPI 3.1, as `docs/openapi.json` has it.

In: the application. Out: the document, with every model in its components. `python -m diagnose.api.contract` prints it;
a test holds that the committed one is the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from diagnose.api.schemas import Problem, Submission

_REF = "#/components/schemas/{model}"


def documented(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """What makes the document of an application, once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            _, more = models_json_schema([(Submission, "validation"), (Problem, "validation")], ref_template=_REF)
            made.setdefault("components", {}).setdefault("schemas", {}).update(more.get("$defs", {}))
            app.openapi_schema = made
        return app.openapi_schema

    return openapi


def main() -> int:
    """Print the document."""
    import tempfile

    from diagnose.api.app import create_app
    from diagnose.service.settings import config_of

    with tempfile.TemporaryDirectory() as folder:
        environment = {"DIAGNOSE_DATABASE": f"{folder}/memory.sqlite3", "DIAGNOSE_SPOOL": f"{folder}/spool"}
        app = create_app(config_of(environment), environment)
        sys.stdout.write(text_of(app))
    return 0


def text_of(app: FastAPI) -> str:
    """The document as it is committed."""
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
