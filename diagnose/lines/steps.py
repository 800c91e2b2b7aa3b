"""Training steps as the frameworks print them, counted over the whole run.

In: the body of a line and the stream it stands in. Out: `Step` (number and total where printed), or None for lines
that are no training step: evaluation, data preparation, settings, complaints.

Steps that start anew each epoch are unfolded (epoch x steps per epoch + step), so that a fall of the number means a
restart and not the end of an epoch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_STREAMS = 8192
MAX_EPOCHS = 4096
# Unnamed bars below this total are "3 files" and "2 shards", not training.
MIN_BAR_TOTAL = 5

# What opens the gate: a line without any of these holds no step.
STEP_LITERALS = ("step", "Step", "STEP", "iter", "Iter", "poch", "it/s", "s/it", "atch", "num_updates", "MLLOG", "'loss'",
                 '"loss"', "Train: ", "Progress on", "==>", "[==", "━", " - ETA", "ms/step")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One step done: its number over the whole run, and how many there will be, where the log says so."""

    number: int | None = None
    total: int | None = None


_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,15})"

_NOT_TRAINING = re.compile(
    r"\b(?:eval|evals|evaluat\w*|valid|validat\w*|val|test|testing|sanity|predict\w*|inferenc\w*|benchmark\w*|warm-?up"
    r"|sav(?:e|ed|ing)|load(?:ed|ing)?|resum\w*|restor\w*|restart\w*|start(?:ed|ing)?|checkpoint\w*|ckpt|skip\w*"
    r"|retry\w*|timed?[ -]?out|overflow\w*|error|exception|traceback|fail(?:ed|ure|s)?|warning|found|detected|until"
    r"|before|after|every|each|per|will|max|expected|waiting|abort\w*|stopp\w*|kill\w*)\b|(?:Error|Exception)\b",
    re.IGNORECASE,
)
_METRIC = re.compile(
    r"loss|\blr\b|learning[_ ]rate|grad|gnorm|tflop|\bmfu\b|tok(?:en)?s?[/_ ]|\btps\b|throughput|samples|\bppl\b"
    r"|perplexity|reward|\bacc|accuracy|\bce\b|sec(?:ond)?s?\b|\b\d+(?:\.\d+)? ?m?s\b|_ms\b|it/s|step_time|perf/|timing"
    r"|\bkl\b|\beta\b|elapsed|\bok\b|\bdone\b|complete|finished",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?:^|[^\w.\-])(?P<scope>(?:global|total|train|training|trainer|optimizer|current|curr|actor|learner)[_ /]"
    r"(?:global_)?)?(?P<word>step|iteration|iter|update|num_updates|batch)['\"]?(?:\s+(?:at|is|number|no\.?))?\s*"
    r"[:=@#]{0,2}\s*['\"\[(]{0,2}\s*(?P<number>"
    + _NUMBER
    + r")(?P<after>[.%]?\w*)\s*(?:(?:/|of)\s*(?P<total>"
    + _NUMBER
    + r"))?",
    re.IGNORECASE,
)
_GLOBAL = frozenset({"global", "total", "training", "trainer"})
_EPOCH = re.compile(
    r"(?:^|[^\w])(?:epoch|ep)(?:\s*\(train\))?\s*[:=#]?\s*\[?\s*(?P<epoch>\d{1,6})(?P<after>[.\w]*)"
    r"(?:\s*/\s*(?P<epochs>\d{1,6}))?",
    re.IGNORECASE,
)
# Epoch and step within it, side by side: torchvision, timm, MMEngine, the PyTorch examples and what grew from them.
_IN_EPOCH = re.compile(
    r"(?:^|[^\w])(?:epoch|train|ep)(?:\s*\(train\))?\s*:?\s*\[?\s*(?P<epoch>\d{1,6})(?:\s*/\s*(?P<epochs>\d{1,6}))?\s*"
    r"\]?[\s,:|\-]{0,4}(?:(?:iter|iteration|step|batch)\s*[:=]?\s*)?\[?\s*(?P<number>\d{1,12})\s*/\s*(?P<total>\d{1,12})",
    re.IGNORECASE,
)
_ITER_ONLY = re.compile(r"\bIter(?:\(train\))?\s*\[\s*(?P<number>\d{1,12})\s*/\s*(?P<total>\d{1,12})\s*\]")
_TAGGED = re.compile(r"\[(?:step|batch|iter)=(?P<number>\d{1,12})/(?P<total>\d{1,12})")
_SWIFT = re.compile(r"'global_step/max_steps': '(?P<number>\d{1,12})/(?P<total>\d{1,12})'")
_LEVANTER = re.compile(
    r"Progress on:\s?train\s+(?P<number>[\d.]{1,12})(?P<unit>[kM]?)(?:it)?/(?P<total>[\d.]{1,12})(?P<units>[kM]?)"
)
# tqdm: `desc: 22%|██ | 440/1998 [14:02<48:12, 1.81s/it, loss=2.1]`; the percentage is missing where no bar is drawn.
_BAR = re.compile(
    r"(?P<name>[^|\r]{0,200}?)\s*\d{1,3}%\|(?P<bar>[^|\r]{0,400})\|\s*(?P<number>\d{1,12})/(?P<total>\d{1,12})\s*"
    r"\[(?P<rest>[^\r]{0,400})"
)
_RICH_BAR = re.compile(
    r"(?P<name>[^━╸╺\r]{0,120}?)\s*[━╸╺]{2,400}[^\d]{0,40}(?P<number>\d{1,12})/(?P<total>\d{1,12})(?P<rest>[^\r]{0,400})"
)
_KERAS_BAR = re.compile(
    r"^\s*(?P<number>\d{1,12})/(?P<total>\d{1,12})\s*(?:\[[=>.]{2,80}\]|[━╸╺]{2,80})(?P<rest>[^\r]{0,400})"
)
_BAR_RATE = re.compile(r"(?:it/s|s/it|\?it/s|\bb/s|step/s|s/step|batch(?:es)?/s|s/batch)")
_BAR_TRAINING = re.compile(r"\b(?:train|epoch|step|iter|ep|optimi[sz]|pretrain|fine-?tun|loss|episode)", re.IGNORECASE)
_BAR_OTHER = re.compile(
    r"\b(?:eval|valid|val|test|sanity|predict|infer|map|filter|token|download|upload|load|resolv|generat|shard|fetch"
    r"|extract|sav|cache|caching|pack|group|hash|creat|process|captur|convert|sampl|roll|prepar|read|writ|copy|compil"
    r"|merg|split|pull|build|index|warm|calibrat|quantiz|running|comput|render|decod|encod|pre-?process)",
    re.IGNORECASE,
)
_POSTFIX_STEP = re.compile(r"\bglobal_step=(?P<number>\d{1,12})(?:\.0*)?(?:[,\]\s]|$)")
_EPOCH_LINE = re.compile(r"^\s*[\[(]?Epoch:?\s+(?P<epoch>\d{1,6})(?:\s*/\s*(?P<epochs>\d{1,6}))?[\])]?\s*:?\s*$")
_MLLOG_KEY = re.compile(r"\"key\": ?\"(?P<key>\w+)\"")
_MLLOG_STEP = re.compile(r"\"(?:step_num|step|iteration)\": ?(?P<number>\d{1,12})[,}\s]")
_MLLOG_PROGRESS = frozenset({"block_stop", "epoch_stop", "eval_accuracy", "train_loss", "eval_stop", "tracked_stats"})


@dataclass(slots=True)
class _Position:
    """Where a stream stands: what was printed last, and what had been done when each epoch began."""

    epoch: int | None = None
    last: int = 0
    total: int = 0
    offset: int = 0


class StepReader:
    """Reads steps, remembering per stream which epoch it is in and which bar is the training's."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], _Position] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._zero_based: dict[tuple[str, str], None] = {}

    def read(self, stream: str, body: str) -> Step | None:
        """The training step that a line's body states, if it states one."""
        if ":::MLLOG" in body:
            return _mllog(body)
        if "%|" in body or "━" in body or "[=" in body or "[>" in body:
            bar = self._bar(stream, body)
            if bar is not None:
                return bar
        return self._epoch_form(stream, body) or self._step_form(stream, body) or self._bare(stream, body)

    def _bar(self, stream: str, body: str) -> Step | None:
        """A progress bar's last state on this line, if the bar is the training's."""
        match = _KERAS_BAR.match(body)
        if match is not None:
            return self._keras(stream, match)
        match = _BAR.match(body) or _RICH_BAR.match(body)
        if match is None:
            return None
        name, rest = match["name"], match["rest"]
        number, total = int(match["number"]), int(match["total"])
        if _BAR_OTHER.search(name) and not re.search(r"\btrain", name, re.IGNORECASE):
            return None
        if (postfix := _POSTFIX_STEP.search(rest)) is not None:
            return Step(int(postfix["number"]))
        named = any(char.isalpha() for char in name)
        if named and not (_BAR_TRAINING.search(name) or "loss" in rest):
            return None
        if not named and (total < MIN_BAR_TOTAL or not _BAR_RATE.search(rest)):
            return None
        epoch = _EPOCH.search(name)
        if epoch is not None and not epoch["after"]:
            return self._exact(stream, "bar", int(epoch["epoch"]), epoch["epochs"], number, total)
        return self._plain_bar(stream, name, number, total)

    def _plain_bar(self, stream: str, name: str, number: int, total: int) -> Step | None:
        """A bar that names no epoch: the longest is the training's; a full one that starts anew is the next epoch."""
        position = self._position(stream, "bar " + name.strip()[:40])
        if total < position.total and position.last < position.total:
            return None  # an evaluation's bar inside the training's
        if total != position.total:
            position.total, position.offset = total, position.offset if position.last else 0
            position.last = 0
        elif number < position.last and position.last >= total:
            position.offset += total
        position.last = number
        return Step(position.offset + number, total if not position.offset else None)

    def _keras(self, stream: str, match: re.Match[str]) -> Step | None:
        """Keras prints `Epoch 3/10` on a line of its own, then the bar."""
        position = self._position(stream, "keras")
        number, total = int(match["number"]), int(match["total"])
        if "loss" not in match["rest"] and "ETA" not in match["rest"] and "step" not in match["rest"]:
            return None
        if position.total and total != position.total:
            return None
        position.total = total
        return Step(max(0, (position.epoch or 1) - 1) * total + number)

    def _epoch_form(self, stream: str, body: str) -> Step | None:
        """Epoch and step side by side, and the tagged forms that need no metric beside them."""
        if (match := _TAGGED.search(body)) is not None:
            head = body[: match.start()]
            if "val" in head.lower():
                return None
            epoch = _EPOCH.search(head)
            if epoch is not None and "batch=" in match[0]:
                return self._exact(stream, "tag", int(epoch["epoch"]), epoch["epochs"], int(match[1]), int(match[2]))
            return Step(int(match["number"]), int(match["total"]))
        if (match := _SWIFT.search(body)) is not None or (match := _ITER_ONLY.search(body)) is not None:
            return Step(int(match["number"]), int(match["total"]))
        if (match := _LEVANTER.search(body)) is not None:
            return Step(_scaled(match["number"], match["unit"]), _scaled(match["total"], match["units"]))
        match = _IN_EPOCH.search(body)
        if match is None or _NOT_TRAINING.search(body, 0, match.start()):
            return None
        if (updates := _scoped_step(body)) is not None:
            return Step(updates)
        return self._exact(
            stream, "epoch", int(match["epoch"]), match["epochs"], int(match["number"]), int(match["total"])
        )

    def _step_form(self, stream: str, body: str) -> Step | None:
        """`step=12 loss=`, `iteration 5/ 4000 | ...`, `global_step: 5` and their kin: a number and a metric."""
        best: re.Match[str] | None = None
        for match in _STEP.finditer(body):
            if not _is_step(body, match):
                continue
            if best is None:
                best = match
            if match["scope"] and match["scope"].rstrip("_ /").lower().partition("_")[0] in _GLOBAL:
                best = match
                break
        if best is None or _NOT_TRAINING.search(body, 0, best.start("word")):
            return None
        number = _integer(best["number"])
        total = _integer(best["total"]) if best["total"] else None
        metric = _METRIC.search(body, best.end()) or _METRIC.search(body, 0, best.start())
        if metric is None and not (total is not None and best["word"].lower().startswith("iter")):
            return None
        if total is not None and (number > total or (best["word"].lower() == "step" and metric is None)):
            return None
        if best["scope"]:
            return Step(number, total)
        epoch = _EPOCH.search(body)
        if epoch is None or epoch["after"]:
            return Step(number, total)
        return Step(self._unfold(stream, int(epoch["epoch"]), number, total), None)

    def _bare(self, stream: str, body: str) -> Step | None:
        """Progress without a number: Hugging Face's dictionaries, and an epoch with its loss."""
        if "'loss'" in body or '"loss"' in body:
            if ("poch" in body or "learning_rate" in body) and "'eval_" not in body and '"eval_' not in body:
                return Step() if body.lstrip()[:1] == "{" else None
            return None
        if (match := _EPOCH_LINE.match(body)) is not None:
            position, epoch = self._position(stream, "keras"), int(match["epoch"])
            moved = position.epoch is not None and epoch > position.epoch
            position.epoch = epoch
            return Step() if moved else None
        match = _EPOCH.search(body)
        if match is None or match["after"] or _NOT_TRAINING.search(body, 0, match.start()):
            return None
        tail = body[match.end() : match.end() + 40]
        return Step() if "loss" in tail and not re.match(r"[\s:|,\-]*val", tail) else None

    def _exact(self, stream: str, form: str, epoch: int, epochs: str | None, number: int, total: int) -> Step | None:
        """Step of the whole run from an epoch, a step within it and the steps of an epoch."""
        if number > total or total == 0:
            return None
        key = (stream, form)
        if epoch == 0 and key not in self._zero_based and len(self._zero_based) < MAX_STREAMS:
            self._zero_based[key] = None
        # `Epoch 1/10` counts from one unless this stream has shown an epoch 0; a lone `Epoch 1` counts from zero.
        base = 1 if epochs is not None and key not in self._zero_based else 0
        whole = int(epochs) * total if epochs is not None else None
        return Step(max(0, epoch - base) * total + number, whole)

    def _unfold(self, stream: str, epoch: int, number: int, total: int | None) -> int:
        """Step of the whole run where it is not known whether the printed one starts anew with each epoch."""
        position = self._position(stream, "unfold")
        if position.epoch is None or epoch < position.epoch:
            position.offset = self._offsets.get((stream, epoch), 0)
        elif epoch > position.epoch:
            if number <= position.last:
                position.offset += total or position.last
            if len(self._offsets) < MAX_EPOCHS:
                self._offsets[stream, epoch] = position.offset
        position.epoch, position.last = epoch, number
        return position.offset + number

    def _position(self, stream: str, form: str) -> _Position:
        key = (stream, form)
        position = self._positions.get(key)
        if position is None:
            if len(self._positions) >= MAX_STREAMS:
                self._positions.pop(next(iter(self._positions)))
            position = self._positions[key] = _Position()
        return position


def _is_step(body: str, match: re.Match[str]) -> bool:
    """Whether this is a whole number of a step: no duration, no fraction, no `time per step: 12`."""
    after = match["after"]
    if after and after != ".":
        return False
    word, scope = match["word"].lower(), match["scope"]
    if word == "batch" and not match["total"]:
        return False
    before = body[match.start() : match.start("word")]
    return scope is not None or before[:1] != "/"


def _scoped_step(body: str) -> int | None:
    """The number of a `global_step` or `num_updates` on the line."""
    for match in _STEP.finditer(body):
        scope = (match["scope"] or "").rstrip("_ /").lower()
        if _is_step(body, match) and (scope in _GLOBAL or match["word"].lower() == "num_updates"):
            return _integer(match["number"])
    return None


def _mllog(body: str) -> Step | None:
    """MLPerf's logger: most submissions count samples or epochs, so a number is taken only where it is a step."""
    key = _MLLOG_KEY.search(body)
    if key is None or key["key"] not in _MLLOG_PROGRESS:
        return None
    number = _MLLOG_STEP.search(body, key.end())
    return Step(int(number["number"]) if number is not None else None)


def _integer(text: str) -> int:
    return int(text.replace(",", ""))


def _scaled(text: str, unit: str) -> int | None:
    """`1.25` and `k` to 1250; None where the text is no number."""
    try:
        return round(float(text) * {"k": 1_000, "M": 1_000_000}.get(unit, 1))
    except ValueError:
        return None
