"""`python -m diagnose.rules.lint [PATH...]`: lint without the command line, for hooks. Exit code 1 on problems."""

import sys

from diagnose.rules.lint import lint_paths
from diagnose.rules.lint.engines import re2_module

found = lint_paths(sys.argv[1:])
for problem in found:
    sys.stdout.write(f"{problem}\n")
if re2_module() is None:
    sys.stderr.write("RE2 is not installed: patterns were checked by their syntax only\n")
sys.stderr.write(f"{len(found)} problem{'s' if len(found) != 1 else ''}\n")
sys.exit(1 if found else 0)
