"""The pages: what they show, to whom; that they can be read by all; that no log can do more than be read."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from diagnose.api.web.rendering import POLICY
from diagnose.api.web.sessions import Sessions
from diagnose.dataclass import replace
from diagnose.models.report import ChainLink, Evidence, SimilarIncident
from diagnose.report import to_json
from diagnose.service.jobs import NewJob
from diagnose.service.keys import Keys
from diagnose.store.database import open_database
from tests.incidents import run
from tests.serving import KEY_ERROR, job, serving, upload
from tests.test_report import HOSTILE, everything
from tests.webpages import INCIDENTS, Page, propose, put, seed

ECC = "ecc-on-one-of-two-hosts"
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></textarea></style><svg/onload=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt;&#x3c;",
    "-->]]><!--",
    HOSTILE,
    "\u202e" + "x" * 5_000,
]
WORD = "plain"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service on loopback without keys, where two jobs blamed the same node."""
    folder = tmp_path_factory.mktemp("pages")
    with serving(folder, DIAGNOSE_ROOTS=str(INCIDENTS.resolve()), DIAGNOSE_RATE="1000000") as client:
        client.app.state.made = seed(client.post, (ECC,))  # type: ignore[attr-defined]
        again = {"job_id": "again", "cluster": "qx", "logs": [{"path": str((INCIDENTS / ECC).resolve())}]}
        assert client.post("/v1/diagnoses", json=again, headers={"Prefer": "wait=60"}).status_code == 200
        propose(client.app.state.running.opening.database())  # type: ignore[attr-defined]
        yield client


@pytest.fixture
def ecc(site: TestClient) -> str:
    return str(site.app.state.made[ECC])  # type: ignore[attr-defined]


def shown(client: TestClient, path: str, status: int = 200, **how: Any) -> Page:
    answer = client.get(path, **how)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert page.problems() == []
    return page


def test_every_page_can_be_read_by_all(site: TestClient, ecc: str) -> None:
    candidates = shown(site, "/candidates")
    assert not any("+00:00" in text for text in candidates.text("td"))
    names = [one["href"] for one in candidates.all("a") if "data-item" in one]
    pages = ["/diagnoses", f"/diagnoses/{ecc}", f"/diagnoses/{ecc}/similar", "/overview", "/login", *names]
    for path in pages:
        page = shown(site, path)
        assert page.all("a")[0] == {"class": "skip", "href": "#main"}
        assert page.all("main")
    shown(site, "/diagnoses/d" + "0" * 24, 404)
    shown(site, "/diagnoses?status=whatever", 422)
    shown(site, "/diagnoses/4711", 404)
    assert "There is no such diagnosis." in site.get("/diagnoses/4711").text
    shown(site, "/candidates/nothing", 404)
    assert site.get("/", follow_redirects=False).headers["location"] == "/diagnoses"


def test_html_by_accept_is_the_page(site: TestClient, ecc: str) -> None:
    html = {"Accept": "text/html"}
    page, own = shown(site, f"/v1/diagnoses/{ecc}", headers=html), shown(site, f"/diagnoses/{ecc}")
    assert (page.text("h2"), page.text("mark")) == (own.text("h2"), own.text("mark"))
    forms = [one["action"] for one in page.all("form")]
    assert forms == [f"/diagnoses/{ecc}/feedback"] * 3
    row, _ = site.app.state.running.submissions.accept(NewJob(job_id="html-waits"))  # type: ignore[attr-defined]
    waits = site.get(f"/v1/diagnoses/{row.id}", headers=html)
    assert (waits.status_code, waits.headers["diagnosis-state"]) == (202, "queued")
    assert "data-again" in waits.text
    assert "retry-after" in waits.headers


def test_html_is_another_when_somebody_has_spoken(site: TestClient) -> None:
    answer = site.post("/v1/diagnoses", json=job("spoken-of", upload(site, KEY_ERROR)), headers={"Prefer": "wait=60"})
    where = answer.headers["location"]
    known = {"Accept": "text/html", "If-None-Match": site.get(where, headers={"Accept": "text/html"}).headers["etag"]}
    assert site.get(where, headers=known).status_code == 304
    assert site.post(f"{where}/feedback", json={"kind": "confirm"}).status_code == 200
    assert site.get(where, headers=known).status_code == 200


def test_a_browser_without_a_key_comes_to_the_page(tmp_path: Path) -> None:
    browses = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site"}
    with open_database(str(tmp_path / "memory.sqlite3")) as database:
        key = Keys(database).add(["read"], ["*"])[1]
    with serving(tmp_path, DIAGNOSE_KEYS="required") as client:
        where = f"/v1/diagnoses/{put(client.app, everything('x'), 'linked')}"
        answer = client.get(where, headers=browses, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, where.removeprefix("/v1"))
        assert client.get(where, headers={"Accept": "text/html"}).status_code == 401
        page = client.get(where, headers={**browses, "Authorization": f"Bearer {key}"}, follow_redirects=False)
        assert (page.status_code, 'feedback" aria-labelledby' in page.text) == (200, False)


def test_who_goes_astray_is_told_by_a_page(site: TestClient) -> None:
    page = shown(site, "/nowhere", 404, headers={"Accept": "text/html,*/*;q=0.8"})
    assert page.text("h1") == ["Not Found"]
    for path, accept in (("/nowhere", "*/*"), ("/nowhere", "image/png"), ("/v1/nowhere", "text/html")):
        answer = site.get(path, headers={"Accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_nothing_comes_from_elsewhere_and_nothing_is_inline() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "default-src 'none'" in POLICY


def test_files_are_kept_by_browsers_as_long_as_they_are_the_same(site: TestClient) -> None:
    page = shown(site, "/diagnoses")
    for where in [page.all("script")[0]["src"], *(one["href"] for one in page.all("link"))]:
        answer = site.get(where)
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True)
        assert "immutable" not in site.get(where.partition("?")[0]).headers["cache-control"]
    assert site.get("/static/pages.py").status_code == 404
    assert site.get("/static/..%2fpages.py").status_code == 404


def test_the_first_screen_is_the_command_lines(site: TestClient, ecc: str) -> None:
    text = site.get(f"/v1/diagnoses/{ecc}", headers={"Accept": "text/plain"}).text
    page = shown(site, f"/diagnoses/{ecc}")
    assert page.text("h2")[0] == "FAILED infrastructure ECCError qx-12 GPU 2"
    labels = [line[:9].strip() for line in text.splitlines()[1:] if line[:9].strip()]
    assert page.text("dt") == labels
    said = " ".join(page.text("dd"))
    assert "restart elsewhere from /ckpt/qx-7b/step_4010 without qx-12" in said


def test_evidence_is_marked_in_its_log_and_led_to(site: TestClient, ecc: str) -> None:
    page = shown(site, f"/diagnoses/{ecc}")
    hits = [one["id"] for one in page.all("li") if one.get("class") == "hit"]
    assert hits == ["e1", "e2", "e3", "e4", "e5"]
    led = [one["href"] for one in page.all("a") if one.get("class") == "where"]
    assert led == ["#e1", "#e2", "#e4"]
    assert [text for text in page.text("span") if text in ("3", "4", "5", "34", "30")] == ["3", "4", "5", "34", "30"]
    # Lines that follow each other are one excerpt, in which each stands once.
    assert len([name for name in page.text("h3") if name.endswith("dmesg.txt")]) == 1
    marked = page.text("mark")
    assert len(marked) == len(set(marked)) == 5


def test_the_chain_is_a_picture_that_has_words(site: TestClient, ecc: str) -> None:
    page = shown(site, f"/diagnoses/{ecc}")
    (told,) = page.text("desc")
    assert told.split("; then ") == [
        "cause ECCError on rank 6 at 01:16:41",
        "teardown Aborted on qx-12 at 01:16:42",
        "symptom NCCLTimeoutError on ranks 0-5, 7 at 01:26:42",
    ]
    bars = [one for one in page.all("rect") if one["class"] in ("cause", "symptom")]
    assert len(bars) == 3  # rank 6; ranks 0-5 and 7
    assert {one["class"] for one in page.all("circle")} == {"cause", "teardown", "symptom"}


def test_similar_incidents_lead_to_their_diagnoses(site: TestClient, ecc: str) -> None:
    page = shown(site, f"/diagnoses/{ecc}/similar")
    (link,) = [
        one["href"] for one in page.all("a") if one["href"].startswith("/diagnoses/d") and ecc not in one["href"]
    ]
    assert shown(site, link).text("h1") == ["Job again"]


@pytest.mark.parametrize("text", ATTACKS)
def test_hostile_texts_are_shown_and_do_nothing(site: TestClient, text: str) -> None:
    plain, hostile = everything(WORD), everything(text)
    told = SimilarIncident("i1", text, 0.9, None, text)
    hostile = replace(hostile, decided_by=replace(hostile.decided_by, rule=text, similar_incidents=(told,)))
    plain = replace(
        plain, decided_by=replace(plain.decided_by, rule=WORD, similar_incidents=(replace(told, summary=WORD),))
    )
    name = re.sub(r"\W", "", text)[:20] + str(len(text))
    ids = [
        put(
            site.app,
            report,
            f"{name}{word[:99]}",
            name=word,
            user=word,
            cluster=word,
            project=word,
            gpus=1,
            started=1.0,
        )
        for report, word in ((plain, WORD), (hostile, text[:200]))
    ]
    before, after = (shown(site, f"/diagnoses/{one}") for one in ids)
    assert after.shape() == before.shape()
    for path in ("/diagnoses", f"/diagnoses/{ids[1]}", f"/diagnoses/{ids[1]}/similar", "/overview"):
        answer = site.get(path)
        Page(answer.text)
        assert all(char.isprintable() or char == "\n" for char in answer.text)
        assert text in (WORD, "javascript:alert(1)", "{{ 7*7 }}{% raw %}") or text not in answer.text
    for query in ("q", "error_type", "cluster", "user", "rule"):
        page = shown(site, "/diagnoses", params={query: text[:200].encode("utf-8", "backslashreplace").decode()})
        assert not [one for one in page.all("script") if "src" not in one]
    shown(site, "/login", params={"next": text[:200].encode("utf-8", "backslashreplace").decode()})
    shown(site, "/overview", params={"cluster": text[:200].encode("utf-8", "backslashreplace").decode()})


def test_a_long_chain_of_many_ranks_is_bounded(site: TestClient) -> None:
    line = Evidence("a.log", 7, "x", "2026-03-02T03:04:05+00:00", 3)
    links = [
        ChainLink(f"Type{number}", "symptom", 9, replace(line, line=number + 8), "r", "r", tuple(range(0, 20_000, 2)))
        for number in range(200)
    ]
    report = replace(everything("x"), chain=tuple(links))
    answer = site.get(f"/diagnoses/{put(site.app, report, 'long')}")
    assert answer.status_code == 200
    assert len(answer.text) < 1_000_000
    assert "188 more" in answer.text


def test_the_list_is_searched_filtered_and_turned(site: TestClient) -> None:
    for number in range(60):
        put(site.app, everything("x"), f"turn-{number}", user="grace", project="turning")
    page = shown(site, "/diagnoses", params={"user": "grace"})
    jobs = [text for text in page.text("a") if text.startswith("turn-")]
    (later,) = [one["href"] for one in page.all("a") if one.get("rel") == "next"]
    assert len(jobs) == 50
    rest = shown(site, later)
    others = [text for text in rest.text("a") if text.startswith("turn-")]
    assert (len(others), set(jobs) & set(others)) == (10, set())
    assert "The newest" in rest.text("a")
    assert [text for text in shown(site, "/diagnoses?q=turn-59").text("a") if text.startswith("turn-")] == ["turn-59"]
    assert "No diagnosis fits" in site.get("/diagnoses?q=nothing-of-the-kind").text


def test_what_waits_and_what_failed_to_be_diagnosed_says_so(site: TestClient) -> None:
    from diagnose.service.claims import Claims

    running = site.app.state.running  # type: ignore[attr-defined]
    row, _ = running.submissions.accept(NewJob(job_id="waits"))
    assert any("data-again" in one for one in shown(site, f"/diagnoses/{row.id}").all("p"))
    claim = Claims(running.opening.database()).claim(row.id, "test", 3)
    assert claim is not None
    assert Claims(running.opening.database()).fail(claim, "no <b>log</b>")
    assert "no &lt;b&gt;log&lt;/b&gt;" in site.get(f"/diagnoses/{row.id}").text


def test_the_overview_counts_by_gpu_time_and_names_nodes(site: TestClient) -> None:
    now = time.time()
    how = {"gpus": 8, "cluster": "counted"}
    put(site.app, everything("x"), "c", attempt=0, started=now - 7200, ended=now - 3600, **how)
    put(site.app, everything("x"), "c", attempt=1, started=now - 3000, ended=now - 1200, **how)
    page = shown(site, "/overview?days=7&cluster=counted")
    (row,) = [row for row in page.text("tr") if "KeyError" in row]
    assert row == "KeyError user 2 100.0 % 12 100.0 % 8 / 8 45 min / 45 min 10 min / 10 min"
    labels = [one["aria-label"] for one in page.all("svg") if "aria-label" in one]
    assert [label.rpartition(": ")[2].partition(",")[0] for label in labels] == ["2 failures", "12 GPU hours"]
    nodes = shown(site, "/overview?days=366&cluster=qx").text("tr")
    assert [row for row in nodes if row.startswith("qx-12")] == ["qx-12 qx 2 lemon? 2 ECCError"]


def test_what_costs_most_gpu_time_comes_first(site: TestClient) -> None:
    """The paper's Table 3: few failures of many GPUs before many of few."""
    now = time.time()
    for number in range(3):
        put(site.app, everything("x"), f"cheap-{number}", cluster="dear", gpus=1, started=now - 600, ended=now - 300)
    dear = replace(everything("x"), error_type="NetworkError")
    put(site.app, dear, "dear", cluster="dear", gpus=1024, started=now - 86_400, ended=now - 300)
    rows = [row for row in shown(site, "/overview?days=7&cluster=dear").text("tr") if " user " in row]
    assert [row.split()[0] for row in rows] == ["NetworkError", "KeyError"]
    failures = site.get("/v1/stats", params={"cluster": "dear"}).json()["failures"]
    assert [(one["error_type"], one["count"]) for one in failures] == [("NetworkError", 1), ("KeyError", 3)]


def test_candidates_show_what_they_would_change_and_are_decided_on(site: TestClient) -> None:
    page = shown(site, "/candidates")
    links = [one["href"] for one in page.all("a") if "data-item" in one]
    texts = [site.get(link).text for link in links]
    new, changed = sorted(texts, key=lambda text: "would change;" in text)
    assert "would be a new file" in new
    assert '<div class="added">+id: learnt-shelves</div>' in new
    assert changed.count('class="removed"') == changed.count('class="added"') == 1
    assert "+title: &#39;Something else&#39;" in changed
    link = links[texts.index(new)]
    token = Page(new).all("input")[0]["value"]
    assert site.post(link, data={"state": "rejected", "token": "x"}).status_code == 403
    after = site.post(link, data={"state": "rejected", "token": token})
    assert "Take the rejection back" in after.text
    assert site.post(link, data={"state": "promoted", "token": token}).status_code == 422
    assert "Reject it" in site.post(link, data={"state": "proposed", "token": token}).text


def test_feedback_is_taken_from_own_forms_only(site: TestClient, ecc: str) -> None:
    where = f"/diagnoses/{ecc}/feedback"
    page = shown(site, f"/diagnoses/{ecc}")
    token = next(one["value"] for one in page.all("input") if one.get("name") == "token")
    good = {"kind": "correct", "error_type": "NetworkError", "note": "the <i>cable</i>", "token": token}
    assert site.post(where, data={**good, "token": ""}).status_code == 403
    assert site.post(where, data=good, headers={"Origin": "https://evil.example"}).status_code == 403
    assert site.post(where, data=good, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    for origin in ("null", "http://[", "http://[::1", "//"):
        assert site.post(where, data=good, headers={"Origin": origin}).status_code == 403
    assert site.post(where, data=good, headers={"Host": "evil.example"}).status_code == 403
    assert site.post(where, json=good).status_code == 415
    assert site.post(where, data={**good, "error_type": "NoSuchThing"}).status_code == 422
    assert site.post(where, data={**good, "kind": "outcome"}).status_code == 422
    assert site.post(where, data={**good, "note": "x" * 70_000}).status_code == 413
    assert "NetworkError" not in shown(site, f"/diagnoses/{ecc}").text("ul")
    after = site.post(where, data=good, headers={"Origin": "http://testserver"})
    assert after.status_code == 200
    assert "The correction is taken down." in after.text
    assert "the &lt;i&gt;cable&lt;/i&gt;" in after.text
    assert Page(after.text).problems() == []
    outcome = site.post(where, data={"kind": "outcome", "recovered": "yes", "token": token})
    assert "it recovered" in outcome.text


def test_a_link_of_elsewhere_leads_here_but_not_by_another_name(site: TestClient) -> None:
    assert site.get("/diagnoses", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    for header in ({"Host": "rebound.example"}, {"X-Forwarded-For": "10.0.0.1"}):
        shown(site, "/diagnoses", 403, headers=header)


class Locked:
    """A service with keys and a failed job of project `ours`."""

    def __init__(self, client: TestClient, keys: Keys) -> None:
        self.client, self.keys = client, keys
        submit = {"Authorization": f"Bearer {self.key('submit')}", "Prefer": "wait=60"}
        sent = upload(client, KEY_ERROR, headers=submit)
        self.diagnosis = client.post("/v1/diagnoses", json=job("1", sent), headers=submit).headers["diagnosis-id"]

    def key(self, *scopes: str, project: str = "ours") -> str:
        return self.keys.add(list(scopes), [project])[1]

    def enter(self, *scopes: str, project: str = "ours") -> Any:
        self.client.cookies.clear()
        data = {"key": self.key(*scopes, project=project), "next": "/overview"}
        return self.client.post("/login", data=data, follow_redirects=False)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    with open_database(str(folder / "memory.sqlite3")) as database:
        keys = Keys(database)
        keys.add(["admin"], ["*"])
        with serving(folder, DIAGNOSE_RATE="100000") as client:
            yield Locked(client, keys)


PAGES = ("/diagnoses", "/diagnoses/{id}", "/diagnoses/{id}/similar", "/overview", "/candidates", "/candidates/x")


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_a_key(locked: Locked, path: str) -> None:
    locked.client.cookies.clear()
    where = path.replace("{id}", locked.diagnosis)
    answer = locked.client.get(where, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={where.replace('/', '%2F')}")
    assert not answer.text
    for cookie in ("x", "a.b.c.d", "a.99999999999.w." + "A" * 43, "\u00e9" * 9, "." * 600):
        headers = {"Cookie": f"diagnose_session={cookie}".encode()}
        assert locked.client.get(where, headers=headers, follow_redirects=False).status_code == 303


def test_a_key_is_shown_once_and_becomes_a_cookie(locked: Locked) -> None:
    answer = locked.enter("read")
    cookie = answer.headers["set-cookie"]
    assert answer.headers["location"] == "/overview"
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert "secure" not in cookie.lower()
    assert "dk_" not in cookie
    secure = locked.client.post(
        "/login", data={"key": locked.key("read")}, headers={"X-Forwarded-Proto": "https"}, follow_redirects=False
    ).headers["set-cookie"]
    assert secure.startswith("__Host-")
    assert "Secure" in secure
    for wrong in ("", "dk_0_0", "x" * 500, locked.key("submit")):
        locked.client.cookies.clear()
        answer = locked.client.post("/login", data={"key": wrong})
        assert answer.status_code in (401, 403)
        assert "set-cookie" not in answer.headers
        assert Page(answer.text).problems() == []
    assert locked.client.post("/login", data={"key": "x"}, headers={"Origin": "http://evil"}).status_code == 403
    for where in ("//evil.example", "https://evil.example", "/diagnoses\\@evil\nx: y", "/\\evil", "javascript:1"):
        data = {"key": locked.key("read"), "next": where}
        assert locked.client.post("/login", data=data, follow_redirects=False).headers["location"] == "/diagnoses"


def test_what_a_key_may_see_and_do_is_the_same_on_pages(locked: Locked) -> None:
    where = f"/diagnoses/{locked.diagnosis}"
    locked.enter("read", "feedback", project="theirs")
    assert "KeyError" not in locked.client.get("/diagnoses").text
    assert "0</strong> jobs" in locked.client.get("/overview?days=7").text
    token = Page(locked.client.get("/diagnoses").text).all("input")[0]["value"]
    for path in (where, f"{where}/similar"):
        shown(locked.client, path, 404)
    said = {"kind": "confirm", "token": token}
    assert locked.client.post(f"{where}/feedback", data=said).status_code == 404

    locked.enter("read")
    page = shown(locked.client, where)
    token = page.all("input")[0]["value"]
    assert "kind" not in [one.get("name") for one in page.all("input")]
    assert locked.client.post(f"{where}/feedback", data={**said, "token": token}).status_code == 403
    for path in ("/candidates", "/candidates/x"):
        shown(locked.client, path, 403)
    assert locked.client.post("/candidates/x", data={"state": "rejected", "token": token}).status_code == 403
    assert "Candidates" not in page.text("a")

    locked.enter("read", "feedback")
    other = Page(locked.client.get(where).text).all("input")[0]["value"]
    assert other != token
    assert locked.client.post(f"{where}/feedback", data={**said, "token": token}).status_code == 403
    assert "confirmed" in locked.client.post(f"{where}/feedback", data={**said, "token": other}).text

    locked.enter("admin", project="any")
    shown(locked.client, "/candidates")
    assert "KeyError" in locked.client.get("/diagnoses").text


def test_a_session_ends_with_its_key_and_when_it_is_left(locked: Locked) -> None:
    locked.enter("read")
    token = Page(locked.client.get("/diagnoses").text).all("input")[0]["value"]
    assert locked.client.post("/logout", data={"token": "x"}).status_code == 403
    copy = {"Cookie": f"diagnose_session={locked.client.cookies['diagnose_session']}"}
    left = locked.client.post("/logout", data={"token": token}, follow_redirects=False)
    assert left.headers["location"] == "/login"
    assert locked.client.get("/diagnoses", follow_redirects=False).status_code == 303
    assert locked.client.get("/diagnoses", headers=copy, follow_redirects=False).status_code == 303

    locked.enter("read")
    locked.keys.revoke(locked.client.cookies["diagnose_session"].partition(".")[0])
    locked.client.app.state.gate._known.clear()  # type: ignore[attr-defined]
    assert locked.client.get("/diagnoses", follow_redirects=False).status_code == 303


def test_who_comes_by_a_link_of_elsewhere_comes_again_with_his_cookie(locked: Locked) -> None:
    locked.client.cookies.clear()
    headers = {"Sec-Fetch-Site": "cross-site"}
    page = shown(locked.client, f"/diagnoses/{locked.diagnosis}", headers=headers)
    assert {"http-equiv": "refresh", "content": "0"} in page.all("meta")
    again = locked.client.get("/diagnoses?again=1", headers=headers, follow_redirects=False)
    assert again.headers["location"].startswith("/login")


def test_reads_of_pages_are_written_down(locked: Locked) -> None:
    locked.enter("read")
    locked.client.get(f"/diagnoses/{locked.diagnosis}", headers={"X-Request-Id": "paged"})
    admin = {"Authorization": f"Bearer {locked.key('admin')}"}
    until = time.monotonic() + 10
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < until:
        items = locked.client.get("/v1/audit", headers=admin).json()["items"]
        found = [one for one in items if one["request_id"] == "paged"]
        time.sleep(0.1)
    assert (found[0]["action"], found[0]["object"], found[0]["project"]) == (
        "GET /diagnoses/{id}",
        locked.diagnosis,
        "ours",
    )


def test_sessions_are_of_one_secret_and_of_twelve_hours(tmp_path: Path) -> None:
    made = Sessions(str(tmp_path), lambda: 1_000.0).cookie("abc")
    assert (tmp_path / "session.key").stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 1
    other = Sessions(str(tmp_path), lambda: 1_000.0 + 43_199)  # another process, with the same spool
    read = other.read(made)
    assert read is not None
    assert read[0] == "abc"
    assert Sessions(str(tmp_path), lambda: 1_000.0 + 43_201).read(made) is None
    assert other.read("x" + made) is None
    assert other.read(made.replace("abc", "abd")) is None


def test_excerpts_of_incidents_hold_every_line_of_evidence(rule_set: Any) -> None:
    import json

    from diagnose.api.web.chain import picture_of
    from diagnose.api.web.excerpts import evidence_of
    from diagnose.api.web.reading import kept
    from diagnose.service.firstscreen import layout_of, read_layout
    from tests.incidents import incidents

    for incident in incidents("incidents")[::9]:
        report = run(incident.folder, incident.expected["inputs"], rule_set)
        read = kept(json.dumps(to_json(report)))
        evidence = evidence_of(read)
        lines = [line for excerpt in evidence.excerpts for line in excerpt.lines if line.anchor]
        assert sorted(line.anchor for line in lines) == sorted(evidence.anchors.values())
        wanted = {(one.line, one.text) for one in read.root_cause.evidence} if read.root_cause else set()
        assert wanted <= {(line.number, line.text) for line in lines}
        _, rows = read_layout(layout_of(report))
        assert all(evidence.of(row.where) for row in rows if row.where)
        picture = picture_of(read, evidence)
        assert picture is not None or len({link.error_type for link in read.chain}) <= 1
