"""The contract: the committed document is the application's, its examples work, and nothing sent to it breaks it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from diagnose.api.contract import text_of
from diagnose.store.incidents import iso_time
from tests.serving import KEY_ERROR, serving, upload
from tests.topology import site
from tests.webpages import propose

DOCUMENT = Path(__file__).parent.parent / "docs" / "openapi.json"
WAIT = {"Prefer": "wait=60"}
ECC = "step 1 loss 2.1\ntorch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"


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

    left = {name for name, schema in schemas.items() if "examples" in schema}

    def example(name: str) -> Any:
        left.discard(name)
        text = json.dumps(schemas[name]["examples"][0])
        return json.loads(text.replace("/scratch", folder).replace("/var/log", folder))

    answer = client.post("/v1/diagnoses", json=example("Submission"), headers=WAIT)
    assert (answer.status_code, answer.json()["error_type"]) == (200, "KeyError"), answer.text
    where = answer.headers["location"]
    assert client.post(f"{where}/feedback", json=example("Feedback")).status_code == 200
    assert client.post(f"{where}/inputs", json=example("MoreInputs")).status_code == 202
    assert client.get(where, headers=WAIT).status_code == 200
    one = client.post("/v1/diagnoses", json={"job_id": "log", "logs": [example("Log")]}, headers=WAIT)
    assert one.json()["error_type"] == "KeyError"
    ended = client.post("/v1/jobs/-/4712/0/end", json=example("End"))
    assert (ended.status_code, ended.headers["location"]) == (202, f"/v1/diagnoses/{ended.json()['id']}")
    propose(client.app.state.running.opening.database())  # type: ignore[attr-defined]
    candidate = client.get("/v1/candidates").json()["items"][0]
    decided = client.post(f"/v1/candidates/{candidate['id']}", json=example("Decision"))
    assert (decided.status_code, candidate["state"]) == (200, "proposed")
    assert client.get(f"/v1/candidates/{candidate['id']}").json()["state"] == decided.json()["state"] != "proposed"
    assert left == set()  # a new example is tried here, too


def test_what_is_known_can_be_read(client: TestClient) -> None:
    """Rules, taxonomy, policy, incidents and figures: what they hold, not only that they answer."""
    named = {one["id"]: one for one in client.get("/v1/rules").json()["items"]}
    assert len(named) > 150
    rule = client.get("/v1/rules/gpu-fallen-off-bus").json()
    assert (rule["error_type"], rule["body"]["id"]) == (named[rule["id"]]["error_type"], rule["id"])
    assert rule["body"]["signatures"]
    types = {one["name"]: one for one in client.get("/v1/taxonomy").json()["items"]}
    assert {one["error_type"] for one in named.values()} <= set(types)
    assert types["ECCError"]["attribution"] == "infrastructure"
    policy = client.get("/v1/policy").json()
    assert {"ecc"} <= {row["id"] for row in policy["rows"]}
    assert policy["budgets"]
    ended = int(time.time()) - 60
    body = {
        "job_id": "counted", "cluster": "figures", "gpus": 16, "logs": [{"upload": upload(client, ECC)}],
        "started_at": iso_time(ended - 9_000), "ended_at": iso_time(ended),
    }  # fmt: skip
    answer = client.post("/v1/diagnoses", json=body, headers=WAIT)
    where = answer.headers["location"]
    stats = client.get("/v1/stats", params={"cluster": "figures"}).json()
    assert (stats["jobs"], stats["statuses"]) == (1, {"failed": 1})
    assert [(one["error_type"], one["count"], one["gpu_hours"]) for one in stats["failures"]] == [("ECCError", 1, 40.0)]
    incident = client.get(f"{where}/state").json()["incident"]
    assert client.get(f"/v1/incidents/{incident}").json()["cluster"] == "figures"
    assert incident in {
        one["id"] for one in client.get("/v1/incidents", params={"error_type": "ECCError"}).json()["items"]
    }
    client.post(f"{where}/feedback", json={"kind": "confirm"})
    assert [one["kind"] for one in client.get(f"/v1/incidents/{incident}").json()["said"]] == ["confirm"]
    counted = {one["rule"]: one for one in client.get("/v1/stats/rules").json()["items"]}
    assert (counted["gpu-ecc-uncorrectable"]["decided"], counted["gpu-ecc-uncorrectable"]["confirmed"]) == (1, 1)


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
