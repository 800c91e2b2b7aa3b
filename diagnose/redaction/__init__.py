"""Redaction with placeholders that can be taken back: nothing leaves the process unredacted."""

from diagnose.redaction.redactor import Redactor, load_redactions

__all__ = ["Redactor", "load_redactions"]
