"""Rules: knowledge as reviewed data, and the engine that turns records into findings and findings into a root cause.

In: rule files, records. Out: `RuleSet`, findings, explanations. A run begins with `bundle.load_bundled`, which keeps
what `load.load_rules` read.
"""
