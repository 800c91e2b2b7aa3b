"""The pages on Postgres, with the API and the worker as processes of their own: what SQLite's dialect would hide."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from diagnose.store.database import open_database
from tests.stores import new_database
from tests.topology import site
from tests.webpages import INCIDENTS, Page, propose, seed

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
ECC, KEY = "ecc-on-one-of-two-hosts", "keyerror-one-of-64"


def test_every_page_is_there(postgres: str, tmp_path: Path) -> None:
    roots = {"DIAGNOSE_ROOTS": str(INCIDENTS.resolve())}
    with new_database(postgres) as address, site(tmp_path, address, **roots) as made:
        made.serve()
        made.worker()
        client = made.client
        client.follow_redirects = True
        ids = seed(client.post, (ECC, KEY))
        for one in ids.values():
            assert made.final(f"/v1/diagnoses/{one}")["state"] == "done", made.said()
        with open_database(address) as database:
            propose(database)

        def page(path: str) -> Page:
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text, made.said())
            read = Page(answer.text)
            assert read.problems() == []
            return read

        assert {"4711", "4712"} <= set(page("/").text("a"))
        for query in ("q=key", "status=failed&attribution=user", "error_type=KeyError", f"q={KEY}", "user=ada&q=4712"):
            found = [text for text in page(f"/diagnoses?{query}").text("a") if text.isdigit()]
            assert found == ["4712"], query
        assert page("/diagnoses?limit=1&cluster=qx").text("h1") == ["Diagnoses"]
        one = page(f"/diagnoses/{ids[ECC]}")
        assert "Job 4711 ecc-on-one-of-two-hosts" in one.text("h1")
        assert any("uncorrectable double bit error" in text for text in one.text("mark"))
        page(f"/diagnoses/{ids[ECC]}/similar")
        overview = page("/overview?days=30")
        rows = overview.text("tr")
        assert [row.split()[:2] for row in rows if "Error" in row and "%" in row] == [
            ["KeyError", "user"], ["ECCError", "infrastructure"],
        ]  # fmt: skip
        assert any(row.startswith("qx-12 qx 1") for row in rows)
        candidates = [one["href"] for one in page("/candidates").all("a") if "data-item" in one]
        assert len(candidates) == 2
        for link in candidates:
            page(link)
        token = next(field["value"] for field in one.all("input") if field.get("name") == "token")
        given = {
            "kind": "correct",
            "error_type": "NetworkError",
            "note": f"the cable, {time.time():.0f}",
            "token": token,
        }
        after = client.post(f"/diagnoses/{ids[ECC]}/feedback", data=given, headers={"Origin": made.url})
        assert given["note"] in after.text, after.text[:2000]
