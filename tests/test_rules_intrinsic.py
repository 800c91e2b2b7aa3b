"""What an exception says by itself: its class, and the operating system's number where the class says nothing."""

from __future__ import annotations

import pytest

from diagnose.lines.frames import culprit_file
from diagnose.lines.tracebacks import parse_traceback
from diagnose.models import Line, LogSource, RaisedException, Record
from diagnose.rules.intrinsic import blames_nobody, deciding_chain, deciding_exception, error_type_of

KNOWN = {"OSError": None, "StorageIOError": None, "KeyError": None, "ConnectionError": None, "RuntimeError": None}


@pytest.mark.parametrize(
    ("name", "message", "error_type"),
    [
        ("OSError", "[Errno 101] Network is unreachable", "ConnectionError"),
        ("OSError", "[Errno 113] No route to host", "ConnectionError"),
        ("socket.error", "[Errno 111] Connection refused", "ConnectionError"),
        ("OSError", "[Errno 110] Connection timed out", "ConnectionError"),
        ("OSError", "[Errno 104] Connection reset by peer", "PeerClosed"),
        ("TimeoutError", "[Errno 110] Connection timed out", "ConnectionError"),
        # A file that a server does not give is no connection of the program's own.
        ("OSError", "[Errno 110] Connection timed out: '/scratch/a.idx'", "StorageIOError"),
        ("TimeoutError", "[Errno 110] Connection timed out: '/scratch/a.idx'", "StorageIOError"),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer: '/scratch/a.idx'", "StorageIOError"),
        ("OSError", "[Errno 117] La structure n'est pas propre: '/scratch/a.idx'", "OSError"),
        ("OSError", "[Errno 117] Die Struktur muss bereinigt werden: '/scratch/a.idx'", "StorageIOError"),
        ("OSError", "[Errno 20] Not a directory: '/scratch/a.idx'", "OSError"),
        ("etcd.EtcdConnectionFailed", "Connection to etcd failed due to MaxRetryError", "ConnectionError"),
        ("http.client.IncompleteRead", "IncompleteRead(81920 bytes read, 20000 more expected)", "ConnectionError"),
        ("OSError", "[Errno 22] Invalid argument", "OSError"),
        ("OSError", "cannot read the header", "OSError"),
        ("KeyError", "[Errno 101] x", "KeyError"),
        ("tensorflow.python.framework.errors_impl.DataLossError", "Graph execution error:", "DatasetLoadingError"),
        ("tensorflow.python.framework.errors_impl.InvalidArgumentError", "x", "ValueError"),
        ("botched.MysteryError", "x", "RuntimeError"),
    ],
)
def test_the_error_type_of_an_exception(name: str, message: str, error_type: str) -> None:
    assert error_type_of(RaisedException(name, message, (), 0), KNOWN) == error_type


@pytest.mark.parametrize(
    ("name", "message", "nobody"),
    [
        ("OSError", "[Errno 37] No locks available", True),
        ("OSError", "[Errno 16] Device or resource busy: '.nfs0001'", True),
        ("OSError", "[Errno 524] Unknown error 524: '/data/a'", True),
        ("OSError", "connection to the daemon was lost", True),
        ("BlockingIOError", "[Errno 11] Resource temporarily unavailable", True),
        ("TimeoutError", "", True),
        ("concurrent.futures._base.TimeoutError", "", True),
        ("grpc._channel._InactiveRpcError", "<_InactiveRpcError of RPC that terminated with:", True),
        ("ssl.SSLCertVerificationError", "certificate verify failed", True),
        ("socket.error", "[Errno 105] No buffer space available", True),
        # What the code asked for wrongly.
        ("OSError", "[Errno 22] Invalid argument: 'a?b'", False),
        ("OSError", "[Errno 36] File name too long: 'a'", False),
        ("NotADirectoryError", "[Errno 20] Not a directory: 'a'", False),
        ("OSError", "cannot read the header", False),
        ("requests.exceptions.MissingSchema", "Invalid URL 'a'", False),
        ("RuntimeError", "connection", False),
        ("struct.error", "unpack requires a buffer of 4 bytes", False),
    ],
)
def test_nobody_is_blamed_for_what_only_the_machine_says(name: str, message: str, nobody: bool) -> None:
    assert blames_nobody(name, message) is nobody


def record_of(text: str) -> Record:
    source = LogSource("job.log")
    lines = tuple(Line(source, number, line, line, "job.log") for number, line in enumerate(text.splitlines(), 1))
    return Record("traceback", lines, text, exceptions=parse_traceback(text))


def told(text: str) -> tuple[str, int]:
    record = record_of(text)
    found = deciding_exception(record)
    assert found is not None
    return found.name, record.lines[found.line_index].number


OPEN = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in <module>\n    step()\n'


@pytest.mark.parametrize(
    ("raised", "name", "line"),
    [
        (
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nPermissionError: no\n",
            "PermissionError",
            5,
        ),
        ("torch._inductor.exc.InductorError: OSError: [Errno 28] No space left\n", "OSError", 4),
        ("odd.CompileFailed: step failed\n", "CompileFailed", 4),
        # What the message only mentions is not what was raised.
        ("odd.CompileFailed: see KeyError: x\n", "CompileFailed", 4),
        ("odd.CompileFailed: while compiling\nFoo: bar\n", "CompileFailed", 4),
        # A class that says something itself speaks for itself.
        ("ValueError: KeyError: 'x'\n", "ValueError", 4),
    ],
)
def test_a_wrapper_s_message_holds_what_was_raised(raised: str, name: str, line: int) -> None:
    assert told(OPEN + raised) == (name, line)


HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
IN_LIBRARY = (
    'Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/lib/cache.py", line 7, in get\n'
)
SITE = '  File "/env/lib/python3.11/site-packages/lib/cache.py", line 9, in get\n'


def frames(*places: tuple[str, str]) -> str:
    head = "Traceback (most recent call last):\n"
    return head + "".join(f'  File "/job/{place}\n    {code}\n' for place, code in places)


READ = frames(('train.py", line 10, in main', "main()"), ('data.py", line 5, in get', 'x = cfg["role"]'))
NARROW = frames(('data.py", line 5, in get', 'return cfg["role"]'))


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        pytest.param(
            READ + "KeyError: 'role'\n" + HANDLED
            + frames(('train.py", line 12, in main', "end()"), ('train.py", line 99, in end', "wandb.log(code)"))
            + "AttributeError: 'NoneType' object has no attribute 'log'\n",
            "KeyError", "/job/data.py:5",
            id="the handler failed at something else",
        ),
        pytest.param(
            NARROW + "KeyError: 'role'\n" + HANDLED
            + frames(('data.py", line 7, in get', 'raise ValueError("no role")')) + "ValueError: no role\n",
            "KeyError", "/job/data.py:5",
            id="the handler gave up with an exception of its own",
        ),
        pytest.param(
            NARROW + "KeyError: 'role'\n" + HANDLED
            + frames(('data.py", line 7, in get', "self.pool.shutdown()"))
            + "AttributeError: 'NoneType' object has no attribute 'shutdown'\n",
            "KeyError", "/job/data.py:5",
            id="the handler cleaned up",
        ),
        pytest.param(
            NARROW + "KeyError: 'role'\n" + HANDLED
            + frames(('data.py", line 7, in get', "return make()"), ('make.py", line 3, in make', "return 1 / 0"))
            + "ZeroDivisionError: division by zero\n",
            "ZeroDivisionError", "/job/make.py:3",
            id="the handler made good for it and failed",
        ),
        pytest.param(
            frames(('attn.py", line 2, in <module>', "import flash_attn")) + "ModuleNotFoundError: No module\n" + HANDLED
            + frames(('attn.py", line 4, in <module>', "from slow import attention"))
            + "ImportError: cannot import name 'attention'\n",
            "ImportError", "/job/attn.py:4",
            id="an import that another one replaces",
        ),
        pytest.param(
            frames(('data.py", line 5, in pick', "return [cfg[k] for k in keys]"))
            + '  File "/job/data.py", line 5, in <listcomp>\n    return [cfg[k] for k in keys]\n' + "KeyError: 'a'\n"
            + HANDLED + frames(('data.py", line 7, in pick', "return int(text)")) + "ValueError: invalid literal\n",
            "ValueError", "/job/data.py:7",
            id="a comprehension is its function's own line",
        ),
        pytest.param(
            IN_LIBRARY + "    return table[key]\nKeyError: 3\n" + HANDLED
            + frames(('train.py", line 10, in main', "lib.get(3)")) + SITE + "    raise TypeError(key)\nTypeError: 3\n",
            "TypeError", "/job/train.py:10",
            id="a library's cache",
        ),
        pytest.param(
            'Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/fit.py", line 7, in fit\n'
            '    step()\n  File "/job/model.py", line 4, in training_step\n    batch["role"]\nKeyError: \'role\'\n'
            + HANDLED + frames(('train.py", line 10, in main', "fit()"))
            + '  File "/env/lib/python3.11/site-packages/fit.py", line 9, in fit\n    logger.stop()\n'
            "TypeError: stop() missing 1 argument\n",
            "KeyError", "/job/model.py:4",
            id="a library catches whatever the code that it calls raises",
        ),
        pytest.param(
            IN_LIBRARY + "    return table[key]\nKeyError: 3\n" + CAUSED
            + frames(('train.py", line 10, in main', "lib.get(3)")) + SITE + "    raise TypeError(key)\nTypeError: 3\n",
            "KeyError", "/job/train.py:10",
            id="named as the cause",
        ),
        pytest.param(
            IN_LIBRARY + "    return table[key]\nKeyError: 3\n" + HANDLED
            + frames(('load.py", line 4, in load', "open(path)")) + "FileNotFoundError: no such file\n" + CAUSED
            + frames(('train.py", line 10, in main', "raise OSError(path) from error")) + "OSError: no such file\n",
            "FileNotFoundError", "/job/load.py:4",
            id="each link of a chain is of its own kind",
        ),
        pytest.param(
            frames(('data.py", line 5, in get', "next(it)")) + "StopIteration\n" + HANDLED
            + frames(('data.py", line 7, in get', 'raise RuntimeError("empty")')) + "RuntimeError: empty\n",
            "RuntimeError", "/job/data.py:7",
            id="the end of an iteration is no error",
        ),
    ],
)  # fmt: skip
def test_which_half_of_a_chain_decides_and_where_it_was_raised(text: str, name: str, place: str) -> None:
    record = record_of(text)
    found = deciding_exception(record)
    assert found is not None
    assert (found.name, culprit_file(deciding_chain(record))) == (name, place)
