"""Who may do what: every route, every scope, every project; and what keys, limits and the audit log do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from diagnose.api.app import create_app
from diagnose.api.auth import Gate
from diagnose.errors import StoreError, UsageError
from diagnose.service.keys import LOCAL, SCOPES, Keys
from diagnose.service.opening import Away, Opening
from diagnose.service.settings import config_of
from diagnose.service.webhooks import signer_of
from diagnose.store.database import open_database
from tests.serving import KEY_ERROR, environment_of, job, serving, upload

WAIT = {"Prefer": "wait=60"}
# Every route that the contract has, and the scope that it needs: a new route must be written down here.
ROUTES: dict[tuple[str, str], str | None] = {
    ("post", "/v1/diagnoses"): "submit",
    ("get", "/v1/diagnoses"): "read",
    ("get", "/v1/diagnoses/{id}"): "read",
    ("delete", "/v1/diagnoses/{id}"): "admin",
    ("get", "/v1/diagnoses/{id}/state"): "read",
    ("get", "/v1/diagnoses/{id}/similar"): "read",
    ("post", "/v1/diagnoses/{id}/feedback"): "feedback",
    ("post", "/v1/diagnoses/{id}/inputs"): "submit",
    ("post", "/v1/uploads"): "submit",
    ("put", "/v1/jobs/{cluster}/{job_id}/{attempt}/logs/{name}"): "submit",
    ("get", "/v1/jobs/{cluster}/{job_id}/{attempt}/logs/{name}"): "submit",
    ("post", "/v1/jobs/{cluster}/{job_id}/{attempt}/end"): "submit",
    ("get", "/v1/rules"): "read",
    ("get", "/v1/rules/{id}"): "read",
    ("get", "/v1/taxonomy"): "read",
    ("get", "/v1/policy"): "read",
    ("get", "/v1/incidents"): "read",
    ("get", "/v1/incidents/{id}"): "read",
    ("get", "/v1/candidates"): "admin",
    ("get", "/v1/candidates/{id}"): "admin",
    ("post", "/v1/candidates/{id}"): "admin",
    ("get", "/v1/stats"): "read",
    ("get", "/v1/stats/rules"): "admin",
    ("get", "/v1/audit"): "admin",
    ("get", "/metrics"): "read",
    ("get", "/healthz"): None,
    ("get", "/readyz"): None,
}
OF_ONE_PROJECT = {route for route in ROUTES if route[1].startswith(("/v1/diagnoses/{id}", "/v1/incidents/{id}"))}
BODIES: dict[str, Any] = {
    "/v1/diagnoses": {"job_id": "matrix"},
    "/v1/diagnoses/{id}/feedback": {"kind": "confirm"},
    "/v1/diagnoses/{id}/inputs": {"kernel_logs": [{"upload": "u" + "0" * 20}]},
    "/v1/candidates/{id}": {"state": "rejected"},
}


class Site:
    """A service with keys, and a failed job of project `ours`."""

    def __init__(self, client: TestClient, keys: Keys) -> None:
        self.client, self.keys = client, keys
        self._made: dict[tuple[str, str], str] = {}
        sent = upload(client, KEY_ERROR, headers=self.key("submit"))
        answer = client.post(
            "/v1/diagnoses", json=job("1", sent, name="n", user="ada"), headers={**self.key("submit"), **WAIT}
        )
        assert answer.status_code == 200, answer.text
        self.diagnosis = answer.headers["diagnosis-id"]
        state = client.get(f"/v1/diagnoses/{self.diagnosis}/state", headers=self.key("read")).json()
        self.incident = state["incident"]

    def key(self, scope: str, project: str = "ours") -> dict[str, str]:
        if (scope, project) not in self._made:
            self._made[scope, project] = self.keys.add([scope], [project])[1]
        return {"Authorization": f"Bearer {self._made[scope, project]}"}

    def ask(self, method: str, path: str, headers: dict[str, str]) -> Any:
        name = self.incident if path.startswith("/v1/incidents") else self.diagnosis
        name = "python-traceback" if path.startswith("/v1/rules") else name
        how: dict[str, Any] = {"headers": headers}
        if path == "/v1/uploads":
            how["content"] = b"x"
        elif path in BODIES and method == "post":
            how["json"] = BODIES[path]
        if path.startswith("/v1/jobs"):
            path = path.format(cluster="gx", job_id="matrix", attempt=0, name="r0.log") + "?offset=0"
        return self.client.request(method, path.replace("{id}", name), **how)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("keys")
    with open_database(str(folder / "memory.sqlite3")) as database:
        keys = Keys(database)
        keys.add(["admin"], ["*"])
        with serving(folder, DIAGNOSE_RATE="100000") as client:
            yield Site(client, keys)


def test_every_route_is_in_the_matrix(site: Site) -> None:
    there = {
        (method, path)
        for path, methods in site.client.get("/openapi.json").json()["paths"].items()
        for method in methods
    }
    assert there == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if ROUTES[route]])
def test_nobody_without_a_key(site: Site, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer dk_0_0"}, {"Authorization": "Basic eDp5"}, {"Authorization": "x"}):
        answer = site.ask(method, path, headers)
        assert answer.status_code == 401, (headers, answer.text)
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if ROUTES[route] and route[0] != "delete"])
def test_a_key_may_do_what_its_scope_says(site: Site, method: str, path: str, scope: str) -> None:
    answer = site.ask(method, path, site.key(scope))
    allowed = scope in (ROUTES[method, path], "admin") and (path != "/metrics" or scope == "admin")
    assert (answer.status_code != 403) == allowed, answer.text
    assert answer.status_code != 401


@pytest.mark.parametrize(("method", "path"), sorted(OF_ONE_PROJECT))
def test_what_is_another_projects_is_not_there(site: Site, method: str, path: str) -> None:
    scope = ROUTES[method, path]
    if scope == "admin":
        return  # an administrator sees all
    answer = site.ask(method, path, site.key(scope or "read", "theirs"))
    assert answer.status_code == 404, answer.text
    assert site.diagnosis not in answer.headers.get("location", "")


def test_a_log_of_another_project_is_another_log(site: Site) -> None:
    path = "/v1/jobs/gx/shared/0/logs/r0.log"
    ours, theirs = site.key("submit"), site.key("submit", "theirs")
    assert site.client.put(path, params={"offset": 0}, content=b"ours\n", headers=ours).json()["offset"] == 5
    assert site.client.get(path, headers=theirs).json()["offset"] == 0
    assert site.client.put(path, params={"offset": 5}, content=b"x", headers=theirs).status_code == 409
    assert site.client.get(path, params={"project": "ours"}, headers=theirs).status_code == 403
    assert site.client.get(path, headers=ours).json()["offset"] == 5


def test_lists_hold_ones_own_projects_only(site: Site) -> None:
    theirs, ours, admin = site.key("read", "nobodys"), site.key("read"), site.key("admin", "theirs")
    for path in ("/v1/diagnoses", "/v1/incidents"):
        assert site.client.get(path, headers=theirs).json()["items"] == []
        assert site.client.get(path, headers=ours).json()["items"]
        assert site.client.get(path, headers=admin).json()["items"]
    assert site.client.get("/v1/diagnoses", params={"project": "ours"}, headers=theirs).json()["items"] == []
    assert site.client.get("/v1/stats", headers=theirs).json()["jobs"] == 0
    assert site.client.get("/v1/stats", headers=ours).json()["jobs"] >= 1


def test_the_same_job_of_two_projects_is_two_jobs(site: Site) -> None:
    sent = upload(site.client, KEY_ERROR, headers=site.key("submit", "theirs"))
    answer = site.client.post("/v1/diagnoses", json=job("1", sent), headers=site.key("submit", "theirs"))
    assert answer.status_code == 202
    assert answer.headers["diagnosis-id"] != site.diagnosis
    # Nor can an upload of another project be named.
    taken = site.client.post("/v1/diagnoses", json=job("2", sent), headers=site.key("submit"))
    assert taken.status_code == 409


def test_a_key_hands_in_for_its_own_projects_only(site: Site) -> None:
    body = {"job_id": "3", "project": "theirs"}
    assert site.client.post("/v1/diagnoses", json=body, headers=site.key("submit")).status_code == 403
    both = {"Authorization": f"Bearer {site.keys.add(['submit'], ['a', 'b'])[1]}"}
    answer = site.client.post("/v1/diagnoses", json={"job_id": "3"}, headers=both)
    assert (answer.status_code, "several projects" in answer.json()["detail"]) == (422, True)
    assert site.client.post("/v1/diagnoses", json={"job_id": "3", "project": "b"}, headers=both).status_code == 202


def test_similar_incidents_of_others_have_no_text(site: Site) -> None:
    sent = upload(site.client, KEY_ERROR, headers=site.key("submit", "third"))
    answer = site.client.post("/v1/diagnoses", json=job("alike", sent), headers={**site.key("submit", "third"), **WAIT})
    found = site.client.get(
        f"/v1/diagnoses/{answer.headers['diagnosis-id']}/similar", headers=site.key("read", "third")
    ).json()["items"]
    assert found
    assert {(one["id"], one["summary"], one["project"]) for one in found} == {(None, None, None)}
    assert {one["error_type"] for one in found} == {"KeyError"}


def test_keys_expire_are_revoked_and_rotated(site: Site) -> None:
    def status(key: str) -> int:
        return site.client.get("/v1/diagnoses", headers={"Authorization": f"Bearer {key}"}).status_code

    name, key = site.keys.add(["read"], ["ours"], days=0.5)
    replaced, fresh = site.keys.rotate(name, hours=0)
    assert (status(key), status(fresh)) == (401, 200)
    assert status(fresh[:-1] + ("A" if fresh[-1] != "A" else "B")) == 401
    days, late = 0.5 * 86_400, 60.0
    assert Keys(site.keys._database, lambda: time.time() + days - late).check(fresh) is not None
    assert (
        Keys(site.keys._database, lambda: time.time() + days + late).check(fresh) is None
    )  # of age, as its forerunner
    site.keys.revoke(replaced)
    assert site.keys.check(fresh) is None
    assert [row.state(time.time()) for row in site.keys.rows() if row.id in (name, replaced)] == ["revoked"] * 2
    with pytest.raises(UsageError, match="no active key"):
        site.keys.rotate(name)


def test_a_key_that_is_too_old_is_refused(site: Site) -> None:
    made = Keys(site.keys._database, lambda: time.time() - 2 * 86_400)
    old, good = made.add(["admin"], ["*"], days=1)[1], made.add(["admin"], ["*"], days=3)[1]
    for path in ("/v1/diagnoses", "/v1/audit", "/metrics"):
        said = [site.client.get(path, headers={"Authorization": f"Bearer {key}"}).status_code for key in (old, good)]
        assert said == [401, 200]
    answer = site.client.post("/login", data={"key": old}, headers={"Origin": str(site.client.base_url)})
    assert answer.status_code == 401


def test_no_key_is_kept_in_clear(site: Site, tmp_path: Path) -> None:
    _, key = site.keys.add(["read"], ["ours"])
    secret = key.split("_", 2)[2].encode()
    for path in Path(site.client.app.state.running.config.database).parent.glob("memory.sqlite3*"):  # type: ignore[attr-defined]
        assert secret not in path.read_bytes()


def test_reads_are_written_down(site: Site) -> None:
    site.client.get(f"/v1/diagnoses/{site.diagnosis}", headers={**site.key("read"), "X-Request-Id": "audited"})
    until = time.monotonic() + 10
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < until:
        items = site.client.get("/v1/audit", headers=site.key("admin")).json()["items"]
        found = [one for one in items if one["request_id"] == "audited"]
        time.sleep(0.1)
    assert (found[0]["action"], found[0]["object"]) == ("GET /v1/diagnoses/{id}", site.diagnosis)
    assert (found[0]["project"], found[0]["status"]) == ("ours", 200)


def test_what_is_done_with_a_diagnosis_is_written_down_with_its_project(site: Site) -> None:
    sent = upload(site.client, KEY_ERROR, headers=site.key("submit"))
    answer = site.client.post("/v1/diagnoses", json=job("told", sent), headers={**site.key("submit"), **WAIT})
    where = f"/v1/diagnoses/{answer.headers['diagnosis-id']}"
    whole = {"logs": [{"upload": sent}]}
    done: list[tuple[str, str, str, Any]] = [
        ("GET", "/state", "read", None),
        ("GET", "/similar", "read", None),
        ("POST", "/feedback", "feedback", {"kind": "confirm"}),
        ("POST", "/inputs", "submit", whole),
        ("DELETE", "", "admin", None),
    ]
    for number, (method, path, scope, body) in enumerate(done):
        headers = {**site.key(scope), "X-Request-Id": f"told-{number}"}
        answer = site.client.request(method, where + path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
    until = time.monotonic() + 60
    found: dict[str, str] = {}
    while len(found) < len(done) and time.monotonic() < until:
        items = site.client.get("/v1/audit", headers=site.key("admin")).json()["items"]
        found = {one["request_id"]: one["project"] for one in items if one["request_id"].startswith("told-")}
        time.sleep(0.1)
    assert found == {f"told-{number}": "ours" for number in range(len(done))}


def test_a_service_that_others_reach_needs_a_key(tmp_path: Path) -> None:
    environment = environment_of(tmp_path, DIAGNOSE_HOST="0.0.0.0")
    app = create_app(config_of(environment), environment)
    with pytest.raises(UsageError, match="diagnose keys add"), TestClient(app):
        pass


def test_too_many_requests_are_told_when_to_come_again(tmp_path: Path) -> None:
    with serving(tmp_path, DIAGNOSE_RATE="3") as client:
        answers = [client.get("/v1/taxonomy") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1


@pytest.mark.parametrize("path", ["/v1/diagnoses/", "/diagnoses/", "/healthz/", "/v1/rules//"])
def test_no_address_leads_to_a_host_that_the_request_names(site: Site, path: str) -> None:
    answer = site.client.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers


def test_roots_of_projects_are_their_own(tmp_path: Path) -> None:
    for project in ("ours", "theirs"):
        (tmp_path / "scratch" / project).mkdir(parents=True)
        (tmp_path / "scratch" / project / "a.log").write_text(KEY_ERROR)
    with open_database(str(tmp_path / "memory.sqlite3")) as database:
        key = {"Authorization": f"Bearer {Keys(database).add(['submit'], ['*'])[1]}"}
    with serving(tmp_path, DIAGNOSE_ROOTS=f"{tmp_path}/scratch/{{project}}") as client:
        path = f"{tmp_path}/scratch/theirs/a.log"
        for project, status in (("theirs", 202), ("ours", 422), ("..", 422), ("", 422), ("ours/../theirs", 422)):
            body = {"job_id": f"r{project}", "project": project, "logs": [{"path": path}]}
            assert client.post("/v1/diagnoses", json=body, headers=key).status_code == status, project


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DIAGNOSE_HOST", "http://ada:geheim@h", "is no host: give a name"),
        ("DIAGNOSE_HOST", "\x1b[31m", "is no host: give a name"),
        ("DIAGNOSE_HOST", "geheim" * 100, "is no host: give a name"),
        ("DIAGNOSE_ROOTS", "geheim", "each must be an absolute path"),
        ("DIAGNOSE_ROOTS", "/proc/geheim/x", "one below /proc is no directory"),
        ("DIAGNOSE_WEBHOOK_ALLOW", "10.0.0.0/8,geheim", "each must be a network"),
    ],
)
def test_settings_that_are_none_are_told_and_not_repeated(tmp_path: Path, name: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}:? {said}") as raised:
        config_of(environment_of(tmp_path, **{name: value}))
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "fe80::1%eth0", "gx-01.example_site.org"])
def test_hosts_to_listen_on(tmp_path: Path, host: str) -> None:
    assert config_of(environment_of(tmp_path, DIAGNOSE_HOST=host)).host == host


def test_a_secret_file_is_told_by_its_settings_name(tmp_path: Path) -> None:
    config = config_of(environment_of(tmp_path, DIAGNOSE_WEBHOOK_SECRET_FILE="geheim"))
    with pytest.raises(UsageError, match="the file of DIAGNOSE_WEBHOOK_SECRET_FILE cannot be read") as raised:
        signer_of(config)
    assert "geheim" not in str(raised.value)  # some put the secret itself there


def test_who_was_let_in_is_so_while_the_database_is_away(tmp_path: Path) -> None:
    """For an hour; whoever is not known is not let in."""
    now = [100.0]
    config = config_of(environment_of(tmp_path))
    opening = Opening(config.database)
    gate = Gate(config, opening, lambda: now[0])
    assert gate.caller(None) is LOCAL
    key = Keys(opening.database()).add(["read"], ["ours"])[1]
    known = gate.caller(key)
    assert known is not None
    opening.failed(Away("gone"))
    opening._until, opening._why = float("inf"), "gone"
    now[0] += 1_800
    assert (gate.caller(None), gate.caller(key)) == (LOCAL, known)
    with pytest.raises(StoreError):
        gate.caller("dk_0_0")
    now[0] += 1_801
    for one in (None, key):
        with pytest.raises(StoreError):
            gate.caller(one)
    opening.close()
