"""`diagnose doctor`: is everything there that the service needs?

In: the environment. Out: a line for each thing that was looked at, with what to do, and an exit code: 0 all is well,
1 something is amiss, 2 the settings themselves cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from diagnose.errors import UsageError, installing
from diagnose.sources.printable import printable


def add_doctor_parser(verbs: Any) -> None:
    """Add the verb to the parser."""
    doctor = verbs.add_parser(
        "doctor",
        help="look whether the service has all it needs",
        description="Look at the settings, the database, the spool, the index, the model and a running service.",
        epilog="example:\n  diagnose doctor\n  diagnose doctor --format json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("--format", choices=("text", "json"), default="text")


def run_doctor(options: argparse.Namespace) -> int:
    """Run the verb."""
    try:
        from diagnose.service.doctor import examine
        from diagnose.service.settings import config_of
    except ModuleNotFoundError as error:
        raise UsageError(f"the service needs {error.name}, which is not installed: {installing('service')}") from error
    seen = examine(config_of(os.environ))
    if options.format == "json":
        print(json.dumps([{"what": one.what, "state": one.state, "said": one.said} for one in seen], indent=1))
    else:
        for one in seen:
            print(f"{one.state:8}{one.what:12}{printable(one.said)}")
    return int(any(one.state == "amiss" for one in seen))
