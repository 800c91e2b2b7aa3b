"""The learning loop: confirmed failures become reviewed rules.

In: incidents that no rule decided, rule sets, what a store records of rules. Out: rule files, patches, branches and
pull requests; what a change of rules changes, as Markdown; figures by rule. Start reading in `propose.py`.
"""
