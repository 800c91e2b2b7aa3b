"""How many failures a drafted rule can express: each bundled incident without the rule that decides it.

    python benchmarks/propose.py [--every N] [--skip N] [--blind]

The lines that decide are those that the label names; with `--blind` they are found by how they sound.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter

from diagnose.cli.rules import judged
from diagnose.dataclass import replace
from diagnose.errors import DiagnoseError
from diagnose.learning.case import case_of_path
from diagnose.learning.corpus import Corpus
from diagnose.learning.propose import propose
from diagnose.learning.trial import Trial
from diagnose.redaction import Redactor
from diagnose.rules.lint.run import fixtures_beside
from diagnose.rules.load import load_rules
from diagnose.rules.tree import shipped_rules


def main() -> None:
    """Propose for every Nth incident and count what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--blind", action="store_true")
    options = parser.parse_args()
    rule_set = load_rules()
    corpus = Corpus(fixtures_beside(shipped_rules()), judged)
    counts: Counter[str] = Counter()
    seconds = 0.0
    for incident in corpus.incidents[options.skip :: options.every]:
        name, label = os.path.basename(incident.folder), incident.error_types[0]
        if incident.status != "failed" or label is None:
            continue
        decided = judged(rule_set, incident.folder, incident.inputs).decided_by.rule
        others = tuple(rule for rule in rule_set.diagnoses if rule.id != decided)
        fewer = replace(rule_set, diagnoses=others)
        start = time.monotonic()
        try:
            case = case_of_path(incident.folder, fewer, blind=options.blind)
            trial = Trial(fewer, shipped_rules(), corpus, judged)
            done = propose(case, trial, redact=Redactor(rule_set.redactions).redact)
            what = "a rule" if done.rule else done.why_not[0].split(":")[-1][:90] if done.why_not else "nothing"
        except DiagnoseError as error:
            done, what = None, str(error)[:90]
        seconds += time.monotonic() - start
        known = done is not None and done.rule is None and "decides it already" in what
        counts["a rule" if done and done.rule else "decided all the same" if known else "not expressible"] += 1
        print(f"{name}: {label}: {what}")
    total = sum(counts.values())
    print(f"{total} incidents, {seconds / max(1, total):.1f} s each: {dict(counts)}")


if __name__ == "__main__":
    main()
