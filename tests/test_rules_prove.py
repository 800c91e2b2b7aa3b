"""Proofs about patterns: keywords that must stand in every match, and what RE2 would refuse."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from diagnose.rules.prove import counter_example, proves, unsafe_constructs

PROVEN = [
    (r"CUDA error: (?:an )?illegal access|ILLEGAL_ADDRESS", ["illegal access", "ILLEGAL_ADDRESS"]),
    (r"foo\d+barely", ["barely"]),
    (r"^a?bcdef$", ["bcdef"]),
    (r"(?:abc|[aA]bd)xyz", ["bcxyz", "bdxyz"]),
    (r"(?P<x>hello) world", ["hello world"]),
    (r"x{3}yz", ["xxxyz"]),
    (r"(?:ab)+cd", ["abcd"]),
    (r"(?:word )+end", ["word "]),
    (r".*needle.*", ["needle"]),
    (r"(?:[a-z]{1,9} ){2,5}stack", ["stack"]),
    (r"(?:one|two|three)(?:a|b|c|d)(?:e|f|g|h)(?:i|j|k|l) finally", ["finally"]),
    (r"\bkill(?:ed)?\b process", ["killed process", "kill process"]),
]
NOT_PROVEN = [
    (r"foo\d+bar", ["foo1"]),
    (r"abc|def", ["abc"]),
    (r"a?bcdef", ["abcdef"]),
    (r"(?:abcdef)?x", ["abcdef"]),
    (r"(?:abcdef)*", ["abcdef"]),
    (r"[a-z]+", ["hello"]),
    (r"ab.cd", ["abcd"]),
    (r"hello", []),
    (r"(unclosed", ["unclosed"]),
]


@pytest.mark.parametrize(("pattern", "keywords"), PROVEN)
def test_proven(pattern, keywords):
    assert proves(pattern, keywords)
    assert counter_example(pattern, keywords) is None


@pytest.mark.parametrize(("pattern", "keywords"), NOT_PROVEN)
def test_not_proven(pattern, keywords):
    assert not proves(pattern, keywords)


@pytest.mark.parametrize(("pattern", "keywords"), NOT_PROVEN[:6])
def test_a_counter_example_matches_and_holds_no_keyword(pattern, keywords):
    text = counter_example(pattern, keywords)
    assert text is not None
    assert regex.search(pattern, text)
    assert not any(keyword in text for keyword in keywords)


@pytest.mark.parametrize(
    "pattern", [r"(?:[a-d]{1,9}x?|y){1,40}z", r"((a|b|c|d)(e|f|g|h)(i|j|k|l)){5,90}", r"(?:(?:a{0,99}){0,99}){0,99}b"]
)
def test_patterns_of_very_many_ways_are_unfolded_in_bounds(pattern):
    assert not proves(pattern, ["zzzzz"])


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("(?=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "back-reference"),
        (r"(?P<x>a)(?P=x)", "back-reference"),
        ("(?>a)b", "atomic"),
        ("a++b", "possessive"),
        ("(a)?(?(1)b|c)", "conditional"),
        ("(?i)a", "inline flag"),
        ("(?s:a)", "inline flag"),
        (r"\p{L}", "read differently"),
        (r"a\Z", "read differently"),
        ("[[:alpha:]]", "POSIX"),
        ("(?:foo){e<=1}", "fuzzy"),
    ],
)
def test_unsafe_constructs_are_named(pattern, word):
    assert word in " ".join(unsafe_constructs(pattern))


@pytest.mark.parametrize("pattern", [r"a{2,3}", r"\\p", r"(?:a|b)?", r"[^]x]", r"(?P<name>\w+)", r"\(\?i\)", r"^\s*$"])
def test_safe_constructs_pass(pattern):
    assert unsafe_constructs(pattern) == []


WORDS = st.lists(
    st.sampled_from(["alpha", "beta", r"\d+", "[xy]", "(?:gamma|delta)", "(?:omega)?", ".", "e{2}", "(?:zeta )+"]),
    min_size=1,
    max_size=6,
)


@given(WORDS, st.sampled_from(["alpha", "beta", "gamma", "betaalpha", "zeta zeta", "omegae"]))
def test_what_is_proven_has_no_counter_example(parts, keyword):
    pattern = "".join(parts)
    if proves(pattern, [keyword]):
        assert counter_example(pattern, [keyword]) is None
