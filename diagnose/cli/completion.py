"""Shell completion, by argcomplete: the script a shell loads, and the answers when it asks."""

from __future__ import annotations

import argparse
import os

from diagnose.cli.arguments import diagnose_parser, verb_parser
from diagnose.cli.options import VERBS


def script(shell: str) -> str:
    """The completion script for a shell."""
    import argcomplete

    return str(argcomplete.shellcode(["diagnose"], shell=shell))  # type: ignore[attr-defined]


def complete() -> None:
    """Answer the shell's question and exit the process."""
    import argcomplete

    words = os.environ.get("COMP_LINE", "").split()
    parser: argparse.ArgumentParser
    if len(words) > 1 and words[1] in VERBS:
        parser = verb_parser()
    else:
        parser = diagnose_parser()
        files = argcomplete.completers.FilesCompleter()
        first = VERBS if len(words) <= 2 else ()
        for action in parser._actions:  # noqa: SLF001 - argcomplete's own interface is an attribute of actions
            if action.dest == "logs":
                action.completer = lambda prefix, **_: [  # type: ignore[attr-defined]
                    *(verb for verb in first if verb.startswith(prefix)),
                    *files(prefix),
                ]
    argcomplete.autocomplete(parser)
