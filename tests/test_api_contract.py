"""The contract: the committed document is the application's, its examples work, and nothing sent to it breaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from diagnose.api.contract import text_of
from tests.serving import KEY_ERROR, serving
from tests.topology import site

DOCUMENT = Path(__file__).parent.parent / "docs" / "openapi.json"
WAIT = {"Prefer": "wait=60"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("contract")
    (folder / "scratch" / "ada").mkdir(parents=True)
    (folder / "scratch" / "ada" / "slurm-4711.out").write_text(KEY_ERROR)
    (folder / "scratch" / "gx-043.dmesg").write_text("[   12.0] usb 1-1: new device\n")
    with serving(folder, DIAGNOSE_ROOTS=str(folder / "scratch"), DIAGNOSE_RATE="1000000") as made:
        made.headers["X-Folder"] = str(folder / "scratch")
        yield made


def test_the_committed_document_is_the_applications(client: TestClient) -> None:
    made = json.loads(text_of(client.app))  # type: ignore[arg-type]
    kept = json.loads(DOCUMENT.read_text())
    made["info"]["version"] = kept["info"]["version"] = ""
    assert made == kept, "run: python -m diagnose.api.contract > docs/openapi.json"


def test_its_examples_work(client: TestClient) -> None:
    schemas = json.loads(DOCUMENT.read_text())["components"]["schemas"]
    folder = client.headers["X-Folder"]

    def example(name: str) -> Any:
        text = json.dumps(schemas[name]["examples"][0])
        return json.loads(text.replace("/scratch", folder).replace("/var/log", folder))

    answer = client.post("/v1/diagnoses", json=example("Submission"), headers=WAIT)
    assert (answer.status_code, answer.json()["error_type"]) == (200, "KeyError"), answer.text
    where = answer.headers["location"]
    assert client.post(f"{where}/feedback", json=example("Feedback")).status_code == 200
    assert client.post(f"{where}/inputs", json=example("MoreInputs")).status_code == 202
    assert client.get(where, headers=WAIT).status_code == 200


@pytest.mark.slow
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_nothing_that_is_sent_breaks_it(tmp_path: Path) -> None:
    """Schemathesis over the whole contract, against a server of its own: no answer is a 5xx."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error

    with site(tmp_path, str(tmp_path / "memory.sqlite3")) as server:
        server.serve()
        assert server.submit("seed", KEY_ERROR.encode(), headers=WAIT).status_code == 200
        schema = schemathesis.openapi.from_dict(json.loads(DOCUMENT.read_text()))
        operations = [result.ok() for result in schema.get_all_operations()]
        for operation in operations:

            @settings(
                max_examples=100,
                deadline=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
                database=None,
            )
            @given(case=operation.as_strategy())
            def run(case: Any) -> None:
                response = case.call(base_url=server.url, timeout=60)
                case.validate_response(response, checks=[not_a_server_error])

            run()
        assert len(operations) >= 20
        assert server.running[0].poll() is None
