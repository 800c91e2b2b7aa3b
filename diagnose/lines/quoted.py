"""Says which lines only quote text: samples and predictions, commands and settings echoed, help, general advice.

In: the body of a line and the stream it belongs to. Out: whether what it says was merely cited. Conservative: a line
that might report a failure of this run is not quoted, and a traceback only where it is the value of such a dump.
"""

from __future__ import annotations

import re
from functools import lru_cache

from diagnose.patterns import Lazy

_MAX_OPEN = 200
_KEY_WINDOW = 100
_USUAL = 300  # characters of an indented line

_SAMPLE_KEYS = (
    r"targets?|predict(?:ed|ions?)|preds?|ground[ _-]?truth|gold|hypothesis|completions?|references?"
    r"|generated(?:[ _]text)?|model[ _]output"
)
# `target   | text`, `doc 12 prediction: text`.
_SAMPLE = Lazy(
    r"[>*\s-]{0,2}(?:(?:doc|sample|example|item|idx|id|case|row|question|instance|query)[ _#=\[]{0,2}[0-9]{0,9}"
    r"[\]:., -]{0,4})?(?:" + _SAMPLE_KEYS + r")\s{0,12}[|:]\s{0,4}\S",
    re.IGNORECASE,
)
_SAMPLE_WORDS = ("arget", "redict", "pred", "ruth", "gold", "ypothes", "ompletion", "eference", "enerated", "output")
_SAMPLE_FIELD = Lazy(
    r"\s{0,12}\{?\s?[\"'](?:" + _SAMPLE_KEYS + r"|labels?|answers?|prompts?|questions?|instruction|input|output|text"
    r"|content|doc|chosen|rejected|choices|messages|resps|query)[\"']:\s?[\"'\[{]",
    re.IGNORECASE,
)
_SAMPLE_OBJECT = Lazy(
    r"[{,]\s?\"(?:prompt|completion|target|prediction|instruction|question|answer|messages|chosen|rejected|text)\":\s?"
    r"[\"\[{]"
)
# `[20/600] prompt="..."`, `q: 'why does NCCL ...'`: a sample's text as the quoted value of its key, within a line.
_SAMPLE_PAIR = Lazy(
    r"(?:^|[\s\[({,;|/])(?:prompts?|questions?|query|queries|instructions?|user_(?:input|message|query)|answers?|responses?"
    r"|replies|reply|(?:ref_|gold_)?answer|chosen|rejected|doc(?:ument)?|sample|example|snippet|title|body_text"
    r"|model_(?:answer|response)|" + _SAMPLE_KEYS + r")\s?[=:]\s?[\"'`]",
    re.IGNORECASE,
)
# `> RuntimeError: ...`, as mail and Markdown quote; only words of failure behind it make it worth telling apart.
_CITED = Lazy(r"\s{0,12}> (?:\S{1,80} ){0,3}\S{0,80}(?:Error|Exception|error)\b")
_OWN_WORDS = (
    "rror", "xception", "ailed", "ailure", "raceback", "memory", "fault", "imeout", "imed out", "Xid", "illed",
)  # fmt: skip
_FAILURE_FIELD = Lazy(r"[\"'](?:error|errors|exception|traceback|py_callstack|exit_?code|stack_trace)[\"']:")

_TRACE = Lazy(r"\+{1,4} [A-Za-z_./'\"\[(\\$:{~]")
_PROMPT = Lazy(r"\$ [A-Za-z./]|[\w.-]{1,32}@[\w.-]{1,64}:[^\s#$]{0,80}[#$] ?")
_DIRECTIVE = Lazy(r"#(?:SBATCH|PBS|BSUB|!/)")
_COMMAND = Lazy(
    r"(?:run sh|[Cc]ommand(?: ?[Ll]ine)?|cmd|CMD|Running command|Executing(?: command)?"
    r"|Launch(?:ing)? command) ?[:=] ?\S"
)
_OPTION = Lazy(r"\s{2,12}--?[A-Za-z][\w-]{0,60}(?:[ ,=]|$)")
_USAGE = Lazy(r"usage: \S")
_DOTTED = Lazy(r"\s{0,4}[\w.-]{1,80} \.{2,80} \S")
_SETTINGS = Lazy(
    r"(?:[\w ]{1,40}[:=]? ?)?[\w.]{0,60}(?:Namespace|Arguments|Args|Config|Configuration|Options|Settings)\(\w{1,60}="
    r"|(?:[\w ]{1,40} )?(?:arguments|args|config|configuration|hparams|hyper-?parameters|options|settings)"
    r" ?[:=] ?(?:[{\[(]|Namespace)",
    re.IGNORECASE,
)
_SETTING_WORDS = ("rguments", "rgs", "onfig", "Namespace", "hparams", "ptions", "ettings", "yper")
_FIELD = Lazy(r"\s{1,12}\"[\w./ -]{1,80}\": (?:[0-9.eE+-]{1,24}|true|false|null|\"[^\"]{0,200}\"|[\[{]),?\Z")
_MAPPING = Lazy(r"\s{0,8}\{?\s?'[\w.-]{1,80}': ")
_MEASURED = ("loss", "epoch", "rror", "xception", "grad_norm", "train_", "eval_", "step", "exit")
_VARIABLE = Lazy(r"(?:export |declare -x )?[A-Z][A-Z0-9_]{2,60}=")
_ADVICE = (
    "For debugging consider passing ",
    "Compile with `TORCH_USE_CUDA_DSA`",
    "CUDA kernel errors might be asynchronously",
    "HIP kernel errors might be asynchronously",
    "Device-side assertion tracking was not enabled",
    "Search for `cudaError",
    "To enable traceback see",
    "If you see ",
    "If you get ",
    "If you encounter ",
    "If you are seeing ",
    "If you run into ",
    "If you experience ",
    "Tip: ",
    "Hint: ",
    "TIP: ",
    "HINT: ",
    "For more information",
    "See also: ",
)
_RESULT = ("failed", "returned non-zero", "not found", "exited", "rror:")
_TRACEBACK = "Traceback (most recent call last"
_LETTERS_COMMAND = frozenset("rCcREL")


class Quotes:
    """Decides line by line; remembers per stream whether a traceback is open that a dump cites."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def read(self, body: str, stream: str, *, bare: bool) -> bool:
        """Whether the line only quotes. `bare`: it has no stamp or level of its own, so it may continue another."""
        if self._open and stream in self._open:
            if bare and self._continues(body, stream):
                return True
            self._open.pop(stream, None)
        if not is_quoted(body):
            return False
        if _TRACEBACK in body and body.rstrip().endswith(":"):
            if len(self._open) > 64:
                self._open.clear()
            self._open[stream] = _MAX_OPEN
        return True

    def read_indented(self, body: str, stream: str) -> bool:
        """What `read` says of a bare line that begins with a blank."""
        if self._open or len(body) > _USUAL or _known_indented(body):
            return self.read(body, stream, bare=True)
        return False

    def _continues(self, body: str, stream: str) -> bool:
        left = self._open[stream] - 1
        if left <= 0 or _TRACEBACK in body:
            return False
        if body[:1] in {" ", "\t", ""}:
            self._open[stream] = left
            return True
        # The line that names the exception ends the traceback that was cited.
        del self._open[stream]
        return True


def is_quoted(body: str) -> bool:
    """Whether this body alone shows that it only quotes."""
    c = body[:1]
    if c in {" ", "\t"}:
        return _known_indented(body) if len(body) <= _USUAL else _indented(body)
    if c == "+":
        return _TRACE.match(body) is not None and "Exception Group" not in body
    if c in {"{", "'", '"'}:
        return _object(body)
    if c == "$":
        return _PROMPT.match(body) is not None
    if c == "#":
        return _DIRECTIVE.match(body) is not None
    if c in "FCHDSTI" and body.startswith(_ADVICE):
        return True
    if (c.isupper() or c in "ed") and _VARIABLE.match(body):
        return True
    head = body[:_KEY_WINDOW]
    if ":" in head or "|" in head:
        for word in _SAMPLE_WORDS:
            if word in head and _SAMPLE.match(body):
                return True
    if ('"' in head or "'" in head or "`" in head) and _is_sample(body):
        return True
    if "(" in body or "{" in body or "[" in body:
        for word in _SETTING_WORDS:
            if word not in head:
                continue
            return _SETTINGS.match(body) is not None and not any(sign in body for sign in _RESULT)
    if c == ">":
        return _CITED.match(body) is not None
    if c == "u":
        return _USAGE.match(body) is not None
    if c in _LETTERS_COMMAND and _COMMAND.match(body):
        return not any(sign in body for sign in _RESULT)
    if " .." in body[:84]:
        return _DOTTED.match(body) is not None
    return "@" in body[:33] and _PROMPT.match(body) is not None


def _is_sample(body: str) -> bool:
    """A sample's text behind its key, where nothing before it or after its closing quote speaks of a failure."""
    match = _SAMPLE_PAIR.search(body, 0, 200)
    if match is None:
        return False
    around = body[: match.start()] + body[body.rfind(match[0][-1]) :]
    return not any(word in around for word in _OWN_WORDS)


def _indented(body: str) -> bool:
    if " .." in body[:84] and _DOTTED.match(body):
        return True
    second = body.lstrip(" \t")[:1]
    if second == "-":
        return _OPTION.match(body) is not None
    if second in {'"', "'", "{"}:
        return _object(body)
    return second == ">" and _CITED.match(body) is not None


_known_indented = lru_cache(maxsize=4096)(_indented)  # ranks that die at once show the same lines


def _object(body: str) -> bool:
    """Samples and settings as JSON or as Python prints them; measurements and failures are not quotes."""
    if _FAILURE_FIELD.search(body):
        return False
    if _SAMPLE_FIELD.match(body) or _FIELD.match(body):
        return True
    if body[:1] == "{" and _SAMPLE_OBJECT.search(body):
        return True
    return _MAPPING.match(body) is not None and not any(word in body for word in _MEASURED)
