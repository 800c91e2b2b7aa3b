"""What is made of rules before a line is read: automata and compiled patterns, which run after run may use.

In: a rule set. Out: `Prepared`. Nothing in it depends on what is read, so that a process that diagnoses job after job
makes it once; a single run makes its own.
"""

from __future__ import annotations

from diagnose.compress import Filters, Guard, Listeners
from diagnose.lines import guard_keywords
from diagnose.lines.interests import EveryReader, Interests, line_literals, spoken_literals
from diagnose.lines.steps import STEP_LITERALS
from diagnose.models import RuleSet
from diagnose.rules.gate import Gate


class Prepared:
    """The rules, ready to be matched; without `compress` every reader is asked about every line."""

    def __init__(self, rules: RuleSet, *, compress: bool = True) -> None:
        self.rules, self.compress = rules, compress
        self.gate = Gate(rule for rule in rules.diagnoses if rule.status != "deprecated")
        keywords = self.gate.keywords
        self.guard = Guard((*keywords, *guard_keywords()), line_literals() if compress else ())
        self.interests = EveryReader()
        if compress:
            self.interests = Interests(keywords, self.guard)
            self.gate.share(self.guard.automaton, self.guard.patterns)
        self.filters = Filters(rules.filters)
        self.listeners = Listeners(spoken_literals(), STEP_LITERALS)
