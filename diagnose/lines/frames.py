"""Frames of Python tracebacks: reading one, and telling the user's code from libraries.

In: file names and lines of tracebacks. Out: `Frame`, the innermost frame of the user's own code, and the library's
frame that raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from diagnose.models import Frame, RaisedException
from diagnose.patterns import Lazy

MAX_FRAMES = 200
_USUAL = 300  # characters of a line that names a frame

# `File "x.py", line 3, in f` (tracebacks), without a function (syntax errors), `line 3 in f` (faulthandler)
_FILE = Lazy(r'\s{0,64}File "([^"]{1,1024})", line (\d{1,9})(?:,? in (.{1,200}))?')

# Installed code, whoever installed it: environments, the standard library, and check-outs of the big frameworks.
_LIBRARY = Lazy(
    r"(?:^|/)(?:site-packages|dist-packages|lib(?:64)?/python\d[^/]{0,16}|lib/python|python\d\.\d{1,2}/lib|lib/site-packages)/"
    r"|(?:^|/)(?:pytorch/torch|torch/_\w{1,40}|torch/(?:nn|distributed|utils|autograd|optim|cuda|multiprocessing|amp)"
    r"|(?:DeepSpeed/)?deepspeed/(?:runtime|launcher|ops|utils|comm|inference)|ray/_private|ray/_raylet|importlib)(?:/|\.py)"
    r"|(?:^|/)(?:transformers/src/transformers|accelerate/src/accelerate|diffusers/src/diffusers|peft/src/peft"
    r"|datasets/src/datasets|huggingface_hub/src/huggingface_hub|vllm/vllm|pytorch-lightning/src)/"
    r"|(?:^|/)torchinductor_[^/]{1,64}/|(?:^|/)torch_extensions/"
    r"|^<|^python/ray/|\.(?:pyx|pxi)$"
)

# What decorators call the function that they put in place of the decorated one.
_HANDED_ON = frozenset({"wrapper", "wrapped", "inner", "inner_wrapper", "decorated", "decorate_context", "_wrapper"})
# Raised in there, an error says what the caller did, whatever the caller.
_PLATFORM = frozenset({"torch", "torch_npu", "functorch", "numpy", "_distutils_hack"})


def make_frame(file: str, line: str | None, function: str | None) -> Frame:
    """A frame, with what its file name says of whose code it is."""
    number = int(line) if line else None
    if function is not None:
        function = function.strip() or None
    return Frame(file, number, function, user=not _installed(file))


@lru_cache(maxsize=2048)
def _installed(file: str) -> bool:
    """Whether a file is a library's; ranks that die at once name the same files again and again."""
    return _LIBRARY.search(file.replace("\\", "/")) is not None


def read_file_line(text: str) -> Frame | None:
    """The frame that a `File "..."` line names, if it is one."""
    return _known_frame(text) if len(text) <= _USUAL else _read_frame(text)


def _read_frame(text: str) -> Frame | None:
    match = _FILE.match(text)
    return make_frame(match[1], match[2], match[3]) if match else None


_known_frame = lru_cache(maxsize=4096)(_read_frame)  # ranks that die at once show the same ones


def add_frame(frames: list[Frame], frame: Frame) -> None:
    """Append a frame; of a very deep stack the outermost and the innermost frames stay."""
    frames.append(frame)
    if len(frames) > 2 * MAX_FRAMES:
        del frames[MAX_FRAMES // 2 : -MAX_FRAMES // 2]


def add_frames(frames: list[Frame], more: Sequence[Frame]) -> None:
    """Append frames in a row, as `add_frame` would one by one."""
    if len(frames) + len(more) <= 2 * MAX_FRAMES:
        frames += more
        return
    for frame in more:
        add_frame(frames, frame)


def innermost_user_frame(exception: RaisedException) -> Frame | None:
    """The frame nearest to the raise that is the user's own code."""
    return next((frame for frame in reversed(exception.frames) if frame.user), None)


def culprit_file(exceptions: Sequence[RaisedException]) -> str | None:
    """`file:line` of the innermost user frame of the first of the exceptions that has one.

    A decorator's frame only hands the call on: the frame that made the call is the one to look at.
    """
    for exception in exceptions:
        own = [frame for frame in exception.frames if frame.user]
        if own:
            return _place(next((frame for frame in reversed(own) if frame.function not in _HANDED_ON), own[-1]))
    return None


def library_file(exceptions: Sequence[RaisedException]) -> str | None:
    """`file:line` of the installed package's frame nearest to the first raise, Python itself and torch apart."""
    frames = next((exception.frames for exception in exceptions if exception.frames), ())
    frame = next((frame for frame in reversed(frames) if _of_package(frame)), None)
    return _place(frame) if frame is not None else None


def _of_package(frame: Frame) -> bool:
    head, found, rest = frame.file.replace("\\", "/").rpartition("-packages/")
    return bool(found) and head.endswith(("site", "dist")) and rest.partition("/")[0] not in _PLATFORM


def _place(frame: Frame) -> str:
    return frame.file if frame.line is None else f"{frame.file}:{frame.line}"
