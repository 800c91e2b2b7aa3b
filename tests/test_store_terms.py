"""What counts in a failure's text is what its error lines say, whoever and wherever it was."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from diagnose.store.embeddings import HashedWords, MiniLM, cached
from diagnose.store.lexical import LexicalIndex, Posting
from diagnose.store.linestore import LineStore
from diagnose.store.terms import condensed, masked, terms_of, weighed_lines


def posting(id: str, label: str, text: str) -> Posting:
    terms = terms_of(text)
    return Posting(id, label, np.array(terms.numbers, np.uint32), np.array(terms.weights, np.float32))


def similarities(index: LexicalIndex, text: str) -> dict[str, float]:
    asked = posting("", "", text)
    return dict(zip(index.ids, index.similarities(asked.numbers, asked.weights).tolist(), strict=True))


def test_hosts_paths_times_and_figures_say_nothing() -> None:
    one = "2026-03-01 10:00:00,123 [rank3]: KeyError: 'role' in /home/ann/lm/data.py on gx-043"
    other = "[rank0]: KeyError: 'role' in /scratch/bob/deep/er/data.py on tr17"
    assert terms_of(one) == terms_of(other)


def test_numbers_that_name_the_failure_do() -> None:
    assert terms_of("NVRM: Xid (PCI:0000:5d:00): 79, GPU lost") != terms_of("NVRM: Xid (PCI:0000:5d:00): 95, GPU lost")
    assert terms_of("exited with exit code 137") != terms_of("exited with exit code 1")


def test_an_exception_weighs_more_than_what_follows_every_failure() -> None:
    weights = dict(
        weighed_lines(
            "step 100 loss 2.5\n"
            "[rank0]: ValueError: bad shape\n"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
            "srun: error: gx-1: task 3: Exited with exit code 1\n"
        )
    )
    assert weights["ValueError: bad shape"] == max(weights.values())
    assert all(weight < 1 for line, weight in weights.items() if "ValueError" not in line)


def test_placeholders_are_no_words() -> None:
    assert "host" not in masked("<host-3> lost <ip-1>").split()
    assert terms_of("<host-3>: CUDA error: lost") == terms_of("<host-77>: CUDA error: lost")


def test_the_condensed_text_holds_the_telling_lines_in_order() -> None:
    text = "step 1\n" * 3 + "warming up\nKeyError: 'a'\nnothing\nNVRM: Xid 79\nSIGTERM\n"
    assert condensed(text).split("\n")[:2] == ["KeyError: 'a'", "NVRM: Xid #"]
    assert condensed("") == ""
    assert len(condensed("error: " + "x y " * 10_000)) <= 300


@pytest.mark.parametrize(
    "piece", ["[a]", "a.b/", "(x) ", "0 ", "12:34:56 ", "code ", "xid ", "a:", "Error", "<host-1>", "/"]
)
def test_hostile_lines_take_no_time(piece: str) -> None:
    terms_of(piece * (64 * 1024 // len(piece)))
    terms_of((piece * 100 + "\n") * 1000)


def test_what_stands_in_failures_of_all_kinds_weighs_little() -> None:
    common = "\nwatchdog caught collective timeout"
    index = LexicalIndex(
        [
            posting("a", "KeyError", "KeyError: 'role'" + common),
            posting("b", "ECCError", "NVRM: Xid 95 uncontained" + common),
            posting("c", "DiskFull", "No space left on device" + common),
        ]
    )
    found = similarities(index, "KeyError: 'name'" + common)
    assert max(found, key=lambda name: found[name]) == "a"
    assert all(0 <= value <= 1.0001 for value in found.values())
    assert similarities(index, "KeyError: 'role'" + common)["a"] == pytest.approx(1, abs=1e-4)


def test_an_empty_index_and_an_empty_text_are_no_error() -> None:
    assert similarities(LexicalIndex([]), "KeyError") == {}
    index = LexicalIndex([posting("a", "KeyError", "KeyError: 'x'")])
    assert similarities(index, "") == {"a": 0.0}
    assert similarities(index, "zzz") == {"a": 0.0}
    assert similarities(LexicalIndex([posting("a", "KeyError", "")]), "KeyError") == {"a": 0.0}


def test_the_small_model_tells_likeness() -> None:
    if not MiniLM.installed():
        pytest.skip("the model's packages are not installed")
    model = MiniLM()
    texts = ["NCCL watchdog timeout in ALLREDUCE", "NCCL collective timed out in all_reduce", "No space left on device"]
    rows = model.embed(texts)
    assert rows.shape == (3, model.dimensions)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-4)
    assert rows[0] @ rows[1] > 0.5 > rows[0] @ rows[2]
    assert np.allclose(model.embed(texts[::-1])[::-1], rows, atol=0.05)  # int8 weighs a batch as a whole


def test_lines_that_bear_on_a_cause_are_found_in_their_order() -> None:
    lines = ["step 100 loss 2.5", "OSError: [Errno 28] No space left on device: 'x.pt'", "saving took 3 s", "SIGTERM"]
    store = LineStore([*lines, "error: write failed on disk"])
    past = ["[rank3]: OSError: [Errno 28] No space left on device: '/data/y.pt'\nsaving took 9 s"]
    assert store.bearing(past, 2) == (lines[1],)
    assert store.bearing(["nothing alarming"], 2) == ()
    assert store.bearing([], 2) == ()
    assert LineStore([]).bearing(past, 2) == ()


def test_each_text_is_embedded_once() -> None:
    seen: list[int] = []

    def embed(texts):
        seen.append(len(texts))
        return HashedWords().embed(texts)

    rows = cached(embed, ["a b", "c", "a b"])
    assert seen == [2]
    assert (rows[0] == rows[2]).all()
    assert len(cached(embed, [])) == 0
