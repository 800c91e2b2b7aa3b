"""Training steps as the frameworks print them, counted over the whole run.

In: the body of a line and the stream it stands in. Out: `Step` (number and total where printed), or None for lines
that are no training step: evaluation, data preparation, settings, complaints.

Steps that start anew each epoch are unfolded (epoch x steps per epoch + step), so that a fall of the number means a
restart and not the end of an epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.dataclass import dataclass
from diagnose.patterns import Lazy

MAX_STREAMS = 8192
MAX_EPOCHS = 4096
# Unnamed bars below this total are "3 files" and "2 shards", not training.
MIN_BAR_TOTAL = 5

# What opens the gate: a line without any of these holds no step.
STEP_LITERALS = (
    "step", "Step", "STEP", "iter", "Iter", "poch", "it/s", "s/it", "batch", "Batch", "num_updates", "MLLOG", "'loss'",
    '"loss"', "Train: ", "Progress on", "==>", "[==", "━", " - ETA", "ms/step",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One step done: its number over the whole run, and how many there will be, where the log says so."""

    number: int | None = None
    total: int | None = None


_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,15})"

# Words before a step's number that make it another's step, a plan or a complaint.
_OTHER_WORDS = frozenset({
    "eval", "evals", "valid", "val", "test", "testing", "sanity", "warmup", "save", "saved", "saving", "load",
    "loaded", "loading", "start", "started", "starting", "ckpt", "timeout", "timed", "error", "exception",
    "traceback", "fail", "failed", "fails", "failure", "warning", "found", "detected", "until", "before",
    "after", "every", "each", "per", "will", "max", "expected",
})  # fmt: skip
_OTHER_STEMS = (
    "evaluat", "validat", "predict", "inferenc", "benchmark", "resum", "restor", "restart", "checkpoint", "skip",
    "retry", "overflow", "waiting", "abort", "stopp", "kill",
)  # fmt: skip
_WORDS = Lazy(r"[a-z_]+")
# What stands beside a step of training, in lower case.
_METRICS = (
    "loss", "lr=", "lr:", "lr ", "learning", "grad", "gnorm", "tflop", "mfu", "tok/s", "token", "tps", "throughput",
    "sample", "ppl", "perplexity", "reward", "acc", " ce ", "sec", "time", "_ms", " ms", "it/s", "perf/", "timing",
    "kl", "eta", "elapsed", " ok", "done", "complete", "finished", "actor/", "critic/",
)  # fmt: skip
# Words that begin with a character as it is are found three times sooner than with a class of two.
_STEP_WORDS = Lazy("step|Step|STEP|iter|Iter|ITER|update|Update|batch|Batch")
_SCOPE = Lazy(
    r"(?:^|[^\w.\-])(?P<scope>(?:global|total|train|training|trainer|optimizer|current|curr|actor|learner)[_ /]"
    r"(?:global_)?)$",
    re.IGNORECASE,
)
_STEP = Lazy(
    r"(?P<word>step|iteration|iter|updates?|batch)['\"]?(?:\s+(?:at|is|number|no\.?))?\s*"
    r"[:=@#]{0,2}\s*['\"\[(]{0,2}\s*(?P<number>" + _NUMBER + r")(?P<after>[.%]?\w*)['\"]?\s*"
    r"(?:(?:/|of)\s*(?P<total>" + _NUMBER + r"))?",
    re.IGNORECASE,
)
MAX_WORDS = 16
_GLOBAL = frozenset({"global", "total", "training", "trainer", "num"})
_EPOCH = Lazy(
    r"(?:^|[^\w])(?:epoch|ep)(?:\s*\(train\))?\s*[:=#]?\s*\[?\s*(?P<epoch>\d{1,6})(?P<after>[.\w]*)"
    r"(?:\s*/\s*(?P<epochs>\d{1,6}))?",
    re.IGNORECASE,
)
# Epoch and step within it, side by side: torchvision, timm, MMEngine, the PyTorch examples and what grew from them.
_IN_EPOCH = Lazy(
    r"(?:^|[^\w])(?:epoch|train|ep)(?:\s*\(train\))?\s*:?\s*\[?\s*(?P<epoch>\d{1,6})(?:\s*/\s*(?P<epochs>\d{1,6}))?\s*"
    r"\]?[\s,:|\-]{0,4}(?:(?:iter|iteration|step"
    r"|batch)\s*[:=]?\s*)?\[?\s*(?P<number>\d{1,12})\s*/\s*(?P<total>\d{1,12})",
    re.IGNORECASE,
)
# MMEngine and mmcv count epochs from one, without saying of how many.
_FROM_ONE = Lazy(r"\W?Epoch(?:\(train\) {1,2}| )\[\d{1,6}\]\[")
_ITER_ONLY = Lazy(r"\bIter(?:\(train\))?\s*\[\s*(?P<number>\d{1,12})\s*/\s*(?P<total>\d{1,12})\s*\]")
_TAGGED = Lazy(r"\[(?:step|batch|iter)=(?P<number>\d{1,12})/(?P<total>\d{1,12})")
_SWIFT = Lazy(r"'global_step/max_steps': '(?P<number>\d{1,12})/(?P<total>\d{1,12})'")
_LEVANTER = Lazy(
    r"Progress on:\s?train\s+(?P<number>[\d.]{1,12})(?P<unit>[kM]?)(?:it)?/(?P<total>[\d.]{1,12})(?P<units>[kM]?)"
)
# tqdm: `desc: 22%|██ | 440/1998 [14:02<48:12, 1.81s/it, loss=2.1]`; the percentage is missing where no bar is drawn.
_BAR = Lazy(
    r"(?P<name>[^\r]{0,200}?)\s*\d{1,3}%\|(?P<bar>[^|\r]{0,400})\|\s*(?P<number>\d{1,12})/(?P<total>\d{1,12})\s*"
    r"\[(?P<rest>[^\r]{0,400})"
)
_RICH_BAR = Lazy(
    r"(?P<name>[^━╸╺\r]{0,120}?)\s*[━╸╺]{2,400}[^\d]{0,40}(?P<number>\d{1,12})/(?P<total>\d{1,12})"
    r"(?P<rest>[^\r]{0,400})"
)
_KERAS_BAR = Lazy(
    r"^\s*(?P<number>\d{1,12})/(?P<total>\d{1,12})\s*(?:\[[=>.]{2,80}\]|[━╸╺]{2,80})(?P<rest>[^\r]{0,400})"
)
_BAR_RATE = Lazy(r"(?:it/s|s/it|\?it/s|\bb/s|step/s|s/step|batch(?:es)?/s|s/batch)")
_BAR_TRAINING = Lazy(r"\b(?:train|epoch|step|iter|ep|optimi[sz]|pretrain|fine-?tun|loss|episode)", re.IGNORECASE)
_BAR_OTHER = Lazy(
    r"\b(?:eval|valid|val|test|sanity|predict|infer|map|filter|token|download|upload|load|resolv|generat|shard|fetch"
    r"|extract|sav|cache|caching|pack|group|hash|creat|process|captur|convert|sampl|roll|prepar|read|writ|copy|compil"
    r"|merg|split|pull|build|index|warm|calibrat|quantiz|running|comput|render|decod|encod|pre-?process)",
    re.IGNORECASE,
)
_POSTFIX_STEP = Lazy(r"\bglobal_step=(?P<number>\d{1,12})(?:\.0*)?(?:[,\]\s]|$)")
_EPOCH_LINE = Lazy(r"^\s*[\[(]?Epoch:?\s+(?P<epoch>\d{1,6})(?:\s*/\s*(?P<epochs>\d{1,6}))?[\])]?\s*:?\s*$")
_MLLOG_KEY = Lazy(r"\"key\": ?\"(?P<key>\w+)\"")
# What a submission counts: steps, samples, or epochs, of which some are parts and some are samples by another name.
_MLLOG_COUNTS = tuple(
    (unit, Lazy(r"\"" + unit + r"\": ?(?P<number>\d{1,15})(?P<part>\.\d{1,20})?[,}\s]"))
    for unit in ("step_num", "step", "iteration", "samples_count", "epoch_num", "first_epoch_num", "epoch")
)
_MLLOG_EPOCH = Lazy(r"\"key\": ?\"train_samples\", ?\"value\": ?(?P<samples>\d{1,15})[,}\s]")
_MLLOG_PROGRESS = frozenset({
    "block_stop", "epoch_stop", "eval_accuracy", "train_loss", "eval_stop", "tracked_stats", "throughput",
})  # fmt: skip


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
        self._mllog = _MllogReader()

    def read(self, stream: str, body: str) -> Step | None:
        """The training step that a line's body states, if it states one."""
        if ":::MLLOG" in body:
            return self._mllog.read(stream, body)
        step = self._read(stream, body)
        if step is not None and step.number is not None:
            self._mllog.yield_to(stream)
        return step

    def _read(self, stream: str, body: str) -> Step | None:
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
        if "=" in body and (match := _TAGGED.search(body)) is not None:
            head = body[: match.start()]
            if "val" in head.lower():
                return None
            epoch = _EPOCH.search(head)
            if epoch is not None and "batch=" in match[0]:
                return self._exact(stream, "tag", int(epoch["epoch"]), epoch["epochs"], int(match[1]), int(match[2]))
            return Step(int(match["number"]), int(match["total"]))
        match = _SWIFT.search(body) if "max_steps" in body else _ITER_ONLY.search(body) if "Iter" in body else None
        if match is not None:
            return Step(int(match["number"]), int(match["total"]))
        if "Progress on" in body and (match := _LEVANTER.search(body)) is not None:
            return Step(_scaled(match["number"], match["unit"]), _scaled(match["total"], match["units"]))
        if not _names_epoch(body):
            return None
        match = _IN_EPOCH.search(body)
        if match is None or _not_training(body[: match.start()]):
            return None
        if (updates := _scoped_step(body)) is not None:
            return Step(updates)
        number = int(match["epoch"])
        if number and _FROM_ONE.match(match[0]):
            number -= 1
        return self._exact(stream, "epoch", number, match["epochs"], int(match["number"]), int(match["total"]))

    def _step_form(self, stream: str, body: str) -> Step | None:
        """`step=12 loss=`, `iteration 5/ 4000 | ...`, `global_step: 5` and their kin: a number and a metric."""
        mentions = list(_mentions(body))
        if not mentions:
            return None
        scope, best = next((mention for mention in mentions if mention[0] in _GLOBAL), mentions[0])
        if _not_training(body[: best.start()]):
            return None
        number = _integer(best["number"])
        total = _integer(best["total"]) if best["total"] else None
        if total is not None and number > total:
            return None
        if not _has_metric(body) and (total is None or not best["word"].lower().startswith("iter")):
            return None
        epoch = _EPOCH.search(body) if scope is None and _names_epoch(body) else None
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
        if match is None or match["after"] or _not_training(body[: match.start()]):
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


class _MllogReader:
    """MLPerf's logger, in which one run may count its evaluations in samples and its blocks in epochs.

    So that a number never seems to fall, a stream has one meter: the event and the unit that come with a number first.
    The others are progress without a number, and so are all where the program prints steps of its own.
    """

    def __init__(self) -> None:
        self._meters: dict[str, tuple[str, str] | None] = {}
        self._samples: dict[str, int] = {}

    def yield_to(self, stream: str) -> None:
        """Take no more numbers from a stream that has steps of its own."""
        if stream in self._meters or len(self._meters) < MAX_STREAMS:
            self._meters[stream] = None

    def read(self, stream: str, body: str) -> Step | None:
        """The progress that a line of the logger states, if it states one."""
        if '"train_samples"' in body and (match := _MLLOG_EPOCH.search(body)) is not None:
            if len(self._samples) < MAX_STREAMS:
                self._samples[stream] = int(match["samples"])
            return None
        key = _MLLOG_KEY.search(body)
        if key is None or key["key"] not in _MLLOG_PROGRESS:
            return None
        unit, number = self._count(stream, body, key.end())
        if number is None or unit is None:
            return Step()
        meter = (key["key"], unit)
        if stream not in self._meters and len(self._meters) < MAX_STREAMS:
            self._meters[stream] = meter
        return Step(number) if self._meters.get(stream) == meter else Step()

    def _count(self, stream: str, body: str, start: int) -> tuple[str | None, int | None]:
        """How far the event says the run is: the unit and the number; parts of an epoch become samples."""
        for unit, pattern in _MLLOG_COUNTS:
            match = pattern.search(body, start) if unit in body else None
            if match is None:
                continue
            part = match["part"]
            if part is None or not part.strip(".0"):
                return unit, int(match["number"])
            samples = self._samples.get(stream)
            return unit, round(float(match["number"] + part) * samples) if samples is not None else None
        return None, None


def _names_epoch(body: str) -> bool:
    return "poch" in body or "EPOCH" in body or "ep " in body or "Train: " in body


def _mentions(body: str) -> Iterator[tuple[str | None, re.Match[str]]]:
    """Where the line numbers a step, and whose: no durations, no fractions, no `sec/step: 12`, no `micro_step`."""
    position = 0
    for _ in range(MAX_WORDS):
        word = _STEP_WORDS.search(body, position)
        if word is None:
            return
        position = word.end()
        match = _STEP.match(body, word.start())
        if match is None or match["after"] not in {"", "."} or (word[0].lower() == "batch" and not match["total"]):
            continue
        before = body[max(0, word.start() - 24) : word.start()]
        if before.endswith("num_") and word[0].lower() == "update":
            yield "num", match
        elif (scope := _SCOPE.search(before)) is not None:
            yield scope["scope"].rstrip("_ /").lower().partition("_")[0].partition("/")[0], match
        elif not before or not (before[-1].isalnum() or before[-1] in "_.-/"):
            yield None, match


def _not_training(head: str) -> bool:
    """Whether what stands before a step says that it is not a step done in training."""
    if "Error" in head or "Exception" in head:
        return True
    return any(word in _OTHER_WORDS or word.startswith(_OTHER_STEMS) for word in _WORDS.findall(head.lower()))


def _has_metric(body: str) -> bool:
    lowered = body.lower()
    return any(metric in lowered for metric in _METRICS)


def _scoped_step(body: str) -> int | None:
    """The number of a `global_step` or `num_updates` on the line."""
    return next((_integer(match["number"]) for scope, match in _mentions(body) if scope in _GLOBAL), None)


def _integer(text: str) -> int:
    return int(text.replace(",", ""))


def _scaled(text: str, unit: str) -> int | None:
    """`1.25` and `k` to 1250; None where the text is no number."""
    try:
        return round(float(text) * {"k": 1_000, "M": 1_000_000}.get(unit, 1))
    except ValueError:
        return None
