"""The template of a new rule: everything lint can know is filled in, the rest is marked.

In: kind, id, family or area, error type, directory. Out: the path of the written file.
"""

from __future__ import annotations

import datetime as dt
import os
import re

from diagnose.errors import UsageError
from diagnose.rules.load import load_rules
from diagnose.rules.tree import shipped_rules

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_DIAGNOSIS = """\
schema: diagnosis-rule/v1
id: {id}
title: FILL IN what happened, in a few words
status: test
level: high
role: cause
error_type: {error_type}
description: >
  FILL IN why this is a failure and what it leads to.
author: [FILL IN your name]
created: {today}
references: ['https://FILL-IN/where-the-text-comes-from']
tags: ['FILL IN a tag of tags.yml']
sources: [job]
signatures:
  main:
    keywords: ['FILL IN a literal of the line']
    pattern: 'FILL IN a literal of the line (?P<detail>\\w+)'
    # programs: [ids of programs.yml: whose words these are]
match: {{any: [main]}}
captures: {{detail: str}}
verdict:
  cause: 'FILL IN the cause, with {{detail}}[ on rank {{rank}}]'
  culprit: {{rank: '{{rank}}'}}
  hint: 'FILL IN what to look at or which setting to change; rules/policy.yml says what to do with job and node.'
  checks: ['[on {{host}}: |on the node: ]FILL IN a command to paste']
examples:
  positive:
    - log: |
        [rank3]: FILL IN a literal of the line example
      source: job
      expect: {{lines: [1], captures: {{detail: example}}}}
  negative:
    - why: FILL IN what looks like it and is harmless
      source: job
      log: |
        FILL IN the harmless line
"""

_FILTER = """\
schema: filter-rule/v1
id: {id}
title: FILL IN which lines are routine
status: test
description: >
  FILL IN who prints them, how many there are, and why nobody misses them.
author: [FILL IN your name]
created: {today}
references: ['https://FILL-IN/where-the-text-comes-from']
tags: ['FILL IN a tag of tags.yml']
# programs: [ids of programs.yml: who prints these lines]
sources: [job]
keywords: ['FILL IN a literal']
pattern: '{{prefix}}FILL IN a literal \\d+'
action: drop
examples:
  noise:
    - 'FILL IN a literal 12'
  signal:
    - 'FILL IN the line that looks like it and matters'
"""


def rules_of_checkout() -> str:
    """The rules of the checkout that this program, or the working directory, belongs to."""
    shipped = shipped_rules()
    if os.path.isfile(os.path.join(os.path.dirname(shipped), "pyproject.toml")):
        return shipped
    # An installed program's own rules are gone with the next installation: a new one goes where its author works.
    here = os.path.abspath(os.curdir)
    while not os.path.isfile(os.path.join(here, "rules", "taxonomy.yml")):
        parent = os.path.dirname(here)
        if parent == here:
            raise UsageError("this is no checkout of diagnose; name a rules directory with --dir")
        here = parent
    return os.path.join(here, "rules")


def write_template(kind: str, name: str, family: str, error_type: str, directory: str) -> str:
    """Write the template of a rule and return its path; raises `UsageError` where that is not possible."""
    if not _ID.fullmatch(name):
        raise UsageError(f"{name!r} is no rule id: use lower-case words joined by hyphens, such as nic-port-down")
    if not family and kind == "filter":
        raise UsageError("a filter rule needs --family, the name of its area, such as torch")
    if family and not _ID.fullmatch(family):
        raise UsageError(f"{family!r} is no family or area: it is the name of one folder, such as network or torch")
    rule_set = load_rules()
    if any(rule.id == name for rule in rule_set.rules) and not directory:
        raise UsageError(f"there is a rule {name} already; choose another id")
    if kind == "diagnosis":
        entry = rule_set.taxonomy.get(error_type)
        if not error_type:
            raise UsageError("a diagnosis rule needs --error-type, a name of taxonomy.yml")
        if entry is None:
            raise UsageError(f"{error_type!r} is no error type; --error-type takes a name of taxonomy.yml")
        family = family or entry.family
        if family != entry.family:
            raise UsageError(f"{error_type} belongs to the family {entry.family}, not {family}")
    root = directory or rules_of_checkout()
    folder = os.path.join(root, "diagnoses" if kind == "diagnosis" else "filters", family)
    path = os.path.join(folder, f"{name}.yml")
    if os.path.exists(path):
        raise UsageError(f"{path} exists; choose another id")
    text = (_DIAGNOSIS if kind == "diagnosis" else _FILTER).format(
        id=name, error_type=error_type, today=dt.datetime.now(dt.UTC).date().isoformat()
    )
    try:
        os.makedirs(folder, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another --dir") from error
    return path
