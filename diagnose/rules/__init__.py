"""Rules: knowledge as reviewed data, and the engine that turns records into findings and findings into a root cause.

In: rule files, records. Out: `RuleSet`, findings, explanations. `load_rules` is where a run begins.
"""

from diagnose.rules.load import load_rules

__all__ = ["load_rules"]
