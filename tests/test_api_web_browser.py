"""The pages in a real browser: by the keyboard alone, wide and narrow, light and dark, without a word on the console.

Needs Chromium (`CHROMIUM`, or where Debian puts it) and Playwright, and is skipped without. `DIAGNOSE_SCREENSHOTS`
names a directory to which pictures of all pages go.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from diagnose.service.keys import Keys
from diagnose.store.database import open_database
from tests.topology import site
from tests.webpages import FAILED, INCIDENTS, propose, seed

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = os.environ.get("DIAGNOSE_SCREENSHOTS")
# Axe and the like are not needed to see whether text stands out from what is behind it.
CONTRASTS = """
() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("main *, header *, footer *")) {
    if (element.closest("svg, select") !== null) continue;
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== "");
    if (!own || element.getClientRects().length === 0) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faint.push(`${element.tagName} ${element.className} ${element.textContent.trim()} ${ratio}`);
  }
  return faint;
}
"""

pytestmark = [pytest.mark.slow, pytest.mark.allow_hosts(["127.0.0.1"])]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"there is no browser at {CHROMIUM}: install chromium, or set CHROMIUM")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("browsed")
    database = str(folder / "memory.sqlite3")
    with site(folder, database, DIAGNOSE_ROOTS=str(INCIDENTS.resolve())) as made:
        made.serve()
        ids = seed(made.client.post, FAILED)
        with open_database(database) as opened:
            propose(opened, author='<img src=x onerror="document.title=1">')
        evil = '<script>document.title="owned"</script><img src=x onerror="document.title=1">'
        log = f"Traceback (most recent call last):\n  File \"/t.py\", line 1, in m\nKeyError: '{evil}'\n"
        answer = made.submit("evil", log.encode(), headers={"Prefer": "wait=60"})
        ids["evil"] = answer.headers["diagnosis-id"]
        made.client.post("/v1/diagnoses", json={"job_id": "long", "name": "x" * 200, "user": "ada"})
        yield made.url, ids


@pytest.fixture
def new_page(browser: Any, served: tuple[str, dict[str, str]]) -> Iterator[Any]:
    """Makes pages, and sees that nothing is said on their consoles and nothing is asked of others."""
    said: list[str] = []
    contexts = []

    def make(width: int = 1280, scheme: str = "light", **how: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, base_url=served[0], **how
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("requestfailed", lambda request: said.append(f"{request.url}: {request.failure}"))
        page.on("request", lambda request: None if request.url.startswith(served[0]) else said.append(request.url))
        return page

    yield make
    for context in contexts:
        for page in context.pages:  # what is still on its way when a page is left has failed, as far as a browser says
            page.wait_for_load_state("networkidle")
        context.close()
    assert said == []


def all_pages(ids: dict[str, str]) -> dict[str, str]:
    return {
        "list": "/diagnoses",
        **{name: f"/diagnoses/{one}" for name, one in ids.items()},
        "similar": f"/diagnoses/{ids[FAILED[0]]}/similar",
        "overview": "/overview?days=90",
        "candidates": "/candidates",
        "login": "/login",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_fit_and_can_be_read(new_page: Any, served: Any, width: int, scheme: str) -> None:
    page = new_page(width, scheme)
    for name, path in all_pages(served[1]).items():
        page.goto(path, wait_until="networkidle")
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over == 0, (name, over)
        assert page.evaluate(CONTRASTS) == [], name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(251, 251, 252)") == (scheme == "light")
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{SCREENSHOTS}/{name}-{width}-{scheme}.png", full_page=True)
    page.goto("/candidates")
    page.click("[data-item]")
    page.wait_for_url("**/candidates/*", wait_until="load")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_a_long_name_tears_no_word_of_others(new_page: Any, served: Any) -> None:
    page = new_page()
    page.goto("/diagnoses", wait_until="networkidle")
    lines = """(cell) => { const range = document.createRange(); range.selectNode(cell.firstChild);
                           return range.getClientRects().length; }"""
    names = page.locator("td.who:has-text('ada')")
    assert names.count() > len(FAILED)
    assert {cell.evaluate(lines) for cell in names.all()} == {1}


def test_the_keyboard_is_enough(new_page: Any, served: Any) -> None:
    page = new_page()

    def focused(what: str) -> Any:
        return page.evaluate(f"document.activeElement.{what}")

    page.goto("/diagnoses")
    page.keyboard.press("Tab")
    assert focused("className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top >= 0")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert focused("id") == "main"
    page.keyboard.press("/")
    assert focused("id") == "f-q"
    page.keyboard.type("jk/")  # is typed, not obeyed
    assert focused("value") == "jk/"
    page.keyboard.press("Control+A")
    page.keyboard.type("4711")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=4711**")
    page.keyboard.press("j")
    assert "4711" in focused("textContent")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{served[1][FAILED[0]]}")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert focused("id") == "e2"
    page.keyboard.press("k")
    assert focused("id") == "e1"
    page.focus("a.where >> nth=2")
    page.keyboard.press("Enter")
    page.locator("#e4:focus").wait_for()
    in_sight = "(({top, bottom}) => top >= 0 && bottom <= innerHeight)(document.activeElement.getBoundingClientRect())"
    for _ in range(100):  # it scrolls there; `wait_for_function` is what the policy of content forbids
        if page.evaluate(in_sight):
            break
        page.wait_for_timeout(50)
    assert page.evaluate(in_sight)
    # All that can be used is reached by Tab, and is seen when it is.
    page.wait_for_load_state("networkidle")
    page.goto(f"/diagnoses/{served[1][FAILED[0]]}", wait_until="networkidle")
    count = page.evaluate("document.querySelectorAll('a[href], button, input:not([type=hidden]), select').length")
    reached = set()
    for _ in range(count + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        assert page.evaluate(
            "document.activeElement === document.body || "  # after the last one, before the first
            "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        )
    assert len(reached) >= count - 1  # radio buttons are one stop


def test_feedback_and_similar_incidents_in_place(new_page: Any, served: Any) -> None:
    page = new_page()
    page.goto(f"/diagnoses/{served[1]['keyerror-one-of-64']}", wait_until="networkidle")
    assert page.locator("#similar #loaded").count() == 1
    page.get_by_label("Error type").select_option("NetworkError")
    page.get_by_role("button", name="Correct it").click()
    page.wait_for_url("**said=correct**")
    assert page.get_by_role("status").inner_text() == "The correction is taken down."
    assert "NetworkError" in page.locator(".told").inner_text()


def test_without_scripts_all_is_there(new_page: Any, served: Any) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(f"/diagnoses/{served[1][FAILED[0]]}")
    page.get_by_role("link", name="Look for incidents that read like this one").click()
    page.wait_for_url("**/similar")
    page.goto("/diagnoses")
    page.get_by_label("Search").fill("DiskFull")
    page.get_by_role("button", name="Filter").click()
    assert page.locator("tbody tr").count() == 1


def test_hostile_logs_run_nothing(new_page: Any, served: Any) -> None:
    page = new_page()
    for path in ("/diagnoses", f"/diagnoses/{served[1]['evil']}", "/candidates"):
        page.goto(path, wait_until="networkidle")
        assert page.title().endswith("- diagnose")
        assert page.locator("main img, main script").count() == 0
    page.goto(f"/diagnoses/{served[1]['evil']}")
    assert '<script>document.title="owned"</script>' in page.locator("main").inner_text()


HOSTILE = "\"><img src=x onerror=\"document.title='owned'\">'\u202e\u200b\u2066<svg onload=document.title='owned'>"
TURNING = "\u202e\u2066\x1b\x00\x07\x85\u2028"
LOGS = (
    f"Traceback (most recent call last):\n  File \"{HOSTILE}\", line 1, in m\n    {HOSTILE}\nKeyError: '{HOSTILE}'\n",
    'Traceback (most recent call last):\n  File "/t.py", line 1, in m\nValueError: ' + "<b>" * 300_000 + "\n",
    (
        '\x1b]0;owned\x07\x1b[2JTraceback (most recent call last):\n  File "/t\x00.py", line 1, in m\n'
        "KeyError: 'javascript:alert(1)'\x00\x85\u2028\n"
    ),
)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """A service whose every field bears what harms pages, and the paths of its pages and of ones that are none."""
    folder = tmp_path_factory.mktemp("attacked")
    database = str(folder / "memory.sqlite3")
    with site(folder, database) as made:
        made.serve()
        with open_database(database) as opened:
            propose(opened, author=HOSTILE)
        said = quote(HOSTILE)
        paths = [
            "/diagnoses",
            f"/diagnoses?q={said}&cluster={said}&error_type={said}&rule={said}&user={said}&project={said}",
            "/overview?days=7",
            f"/overview?cluster={said}",
            "/candidates",
            f"/login?next={said}",
        ]
        for number, log in enumerate(LOGS):
            name = made.client.post("/v1/uploads", params={"name": f"{number}.log"}, content=log.encode()).json()["id"]
            answer = made.client.post(
                "/v1/diagnoses",
                json={
                    "job_id": f"{number}{HOSTILE}",
                    **dict.fromkeys(("cluster", "name", "user", "image", "scheduler"), HOSTILE),
                    "nodes": [HOSTILE, "javascript:x", "</textarea>"],
                    "exit": {"code": 1, "state": HOSTILE},
                    "logs": [
                        {"upload": name, "source": f"{HOSTILE.replace('/', '_')}.log", "host": HOSTILE, "rank": 3}
                    ],
                },
                headers={"Prefer": "wait=60"},
            )
            assert answer.status_code == 200, answer.text
            page = f"/diagnoses/{answer.headers['diagnosis-id']}"
            note = {"kind": "confirm", "note": HOSTILE + "\x1b[2J"}
            assert made.client.post(f"/v1{page}/feedback", json=note).status_code == 200
            paths += [page, f"{page}/similar", f"{page}?said=confirm"]
        yield made.url, paths


def test_hostile_texts_do_nothing_in_a_browser(browser: Any, attacked: tuple[str, list[str]]) -> None:
    url, paths = attacked
    said: list[str] = []
    context = browser.new_context(viewport={"width": 400, "height": 900}, base_url=url)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: None if request.url.startswith(url) else said.append(request.url))
    for path in paths:
        page.goto(path, wait_until="networkidle")
        assert page.title() != "owned", path
        assert (
            page.evaluate("document.querySelectorAll('main img, main script, [onerror], [onload], [style]').length")
            == 0
        )
        links = page.evaluate("[...document.querySelectorAll('a, form')].map((each) => each.href || each.action)")
        assert [one for one in links if not one.startswith(url)] == [], path
        text = page.evaluate("document.documentElement.outerHTML")
        assert not [sign for sign in TURNING if sign in text], path
        assert len(text) < 1_000_000
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0, path
        for wrong in ("#%", "#%E0%A4%A", "#nowhere"):
            page.evaluate(f"location.hash = '{wrong}'")
    page.wait_for_timeout(200)
    context.close()
    assert said == []


def test_a_link_leads_through_the_log_in_by_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    """Where keys are needed: the `Location` of a job, a wrong key, a right one, what it may do, and out again."""
    database = str(tmp_path / "memory.sqlite3")
    with open_database(database) as opened:
        key = Keys(opened).add(["read", "submit"], ["llm"])[1]
    with site(tmp_path, database, DIAGNOSE_ROOTS=str(INCIDENTS.resolve())) as made:
        made.client.headers["Authorization"] = f"Bearer {key}"
        made.serve()
        (name,) = seed(made.client.post, (FAILED[3],)).values()
        context = browser.new_context(base_url=made.url)
        page = context.new_page()
        page.goto(f"/v1/diagnoses/{name}")
        assert page.evaluate("document.activeElement.name") == "key"  # one may type at once
        for typed, status in (("dk_wrong", 401), (key, 200)):
            page.keyboard.type(typed)
            with page.expect_navigation() as shown:
                page.keyboard.press("Enter")
            assert shown.value.status == status
            if status == 401:
                assert page.get_by_role("alert").inner_text().startswith("That key is none")
                page.get_by_label("API key").focus()
        assert page.url == f"{made.url}/diagnoses/{name}"
        assert page.get_by_role("button").all_inner_texts() == ["Log out"]  # a key that reads gives no feedback
        assert page.get_by_role("link", name="Candidates").count() == 0
        page.goto(f"/v1/diagnoses/{name}")
        assert page.url == f"{made.url}/diagnoses/{name}"
        page.goto("/candidates")
        assert "it needs the scope admin" in page.locator("main").inner_text()
        page.goto("/diagnoses")
        with page.expect_navigation():
            page.get_by_role("button", name="Log out").press("Enter")
        assert page.url.startswith(f"{made.url}/login")
        context.close()
