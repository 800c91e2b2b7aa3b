"""Which form of a report a client wants: JSON, Markdown, text or HTML, by the header Accept.

In: the header. Out: one of `FORMS`, or 406.
"""

from __future__ import annotations

from typing import Final

from diagnose.api.problems import ProblemError

JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"
TEXT: Final = "text/plain"
HTML: Final = "text/html"
FORMS: Final = (JSON, MARKDOWN, HTML, TEXT)
_MOST: Final = 50


def wanted(accept: str | None, forms: tuple[str, ...] = FORMS) -> str:
    """The form that a client likes best; the first of ours where it does not say."""
    if not accept:
        return forms[0]
    best: tuple[float, int, str] | None = None
    entries: list[tuple[str, float]] = []
    for entry in accept[:2_000].split(",")[:_MOST]:
        media, *parameters = (part.strip().lower() for part in entry.split(";"))
        entries.append((media, _quality(parameters)))
    refused = {media for media, quality in entries if not quality}  # by name, which `*/*` does not take back
    for media, quality in entries:
        for place, form in enumerate(forms):
            if form in refused:
                continue
            fits = media in (form, "*/*", form.split("/")[0] + "/*")
            if fits and quality > 0 and (best is None or (quality, media != "*/*", -place) > (best[0], True, -best[1])):
                best = (quality, place, form)
    if best is None:
        raise ProblemError(406, f"a report comes as {', '.join(forms)}")
    return best[2]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0
