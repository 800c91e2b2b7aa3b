"""The shipped filter rules: each matches its noise and nobody matches a signal line."""

from __future__ import annotations

from pathlib import Path

import pytest
import re2
import yaml

from diagnose.compress import Filters, expand, template
from diagnose.models import FilterRule
from diagnose.models.rule import FilterExamples, Yields

ROOT = Path(__file__).parents[1] / "rules"


def load(path: Path) -> FilterRule:
    data = yaml.safe_load(path.read_text())
    examples = FilterExamples(
        tuple(data.pop("examples")["noise"]), tuple(yaml.safe_load(path.read_text())["examples"]["signal"])
    )
    yields = Yields(data.pop("yields")["progress"]) if "yields" in data else None
    data["created"] = str(data["created"])
    return FilterRule(examples=examples, yields=yields, **data)


RULES = [load(path) for path in sorted(ROOT.glob("filters/*/*.yml"))]
FILTERS = Filters(RULES)
COMPILED = {compiled.id: compiled for compiled in FILTERS.rules}
FRAMES = [
    b'  File "/w/train.py", line 12, in main',
    b'[rank3]:   File "/w/train.py", line 12, in main',
    b"    loss.backward()",
    b"    ^^^^^^^^^^^^^^^",
    b"frame #3: c10::Error::Error() + 0x57 (0x7f in /usr/lib/libc10.so)",
    b"RuntimeError: CUDA error: an illegal memory access was encountered",
    b"[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout",
    b"",
]


def test_there_are_enough():
    assert len(RULES) >= 45


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule(rule):
    compiled = COMPILED[rule.id]
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    re2.compile(expand(rule.pattern), options)
    assert compiled.exact, "the pattern asks for particular digits"
    assert all(len(keyword) >= 5 for keyword in rule.keywords)
    for text in rule.examples.noise:
        line = text.encode()
        assert compiled.matches(line), text
        assert compiled.may_match(template(line)), text
    for text in rule.examples.signal:
        assert not any(other.matches(text.encode()) for other in FILTERS.rules), text
    for line in FRAMES:
        assert not compiled.matches(line)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.yields], ids=lambda rule: rule.id)
def test_progress_is_read_where_the_line_states_it(rule):
    spans = [COMPILED[rule.id].step_span(template(text.encode())) for text in rule.examples.noise]
    assert any(spans)
    for text, span in zip(rule.examples.noise, spans, strict=True):
        assert span is None or text.encode()[slice(*span)].isdigit()


def test_tags_are_known():
    known = yaml.safe_load((ROOT / "tags.yml").read_text())["tags"]
    assert not {tag for rule in RULES for tag in rule.tags} - set(known)
