"""`diagnose run -- COMMAND`: the command as it would be without us, and a diagnosis when it fails."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.cli.run import exit_map
from diagnose.errors import UsageError
from diagnose.integrations.launch import oom_kills, write_termination
from diagnose.integrations.local import Answer
from tests.commandline import ROOT, Outcome, environment, start

FAILS = "import sys; print('step 1 loss 2.5', flush=True); {}['role']"
_SHORT = 60  # seconds; a bound for what should take one


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A directory for temporary files, which must be empty again at the end."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def run(here: Path, *arguments: str, stdin: bytes = b"") -> Outcome:
    with start("run", *arguments, env={"TMPDIR": str(here)}) as process:
        out, err = process.communicate(stdin, timeout=_SHORT)
    return Outcome(process.returncode, out.decode("latin-1"), err.decode("latin-1"))


def python(code: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", code)


def until(file: Path | str, text: str) -> None:
    """Waits until a file holds a text."""
    end = time.monotonic() + _SHORT
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            if text in Path(file).read_text():
                return
        time.sleep(0.01)
    raise AssertionError(f"{text} did not come")


def test_a_command_that_succeeds_is_as_without_us(here: Path) -> None:
    outcome = run(here, "--", "sh", "-c", "cat; echo err >&2", stdin=b"in\xff\n")
    assert outcome == Outcome(0, "in\xff\n", "err\n")


def test_bytes_are_exact_and_streams_apart(here: Path) -> None:
    code = (
        "import os, random; r = random.Random(7)\n"
        "for _ in range(300): os.write(1 + (r.random() < .3), r.randbytes(r.randrange(20_000)))"
    )
    plain = subprocess.run(python(code), capture_output=True, check=True)
    with start("run", "--log", str(here / "log"), "--", *python(code), env={"TMPDIR": str(here)}) as process:
        out, err = process.communicate(timeout=_SHORT)
    assert (process.returncode, out, err) == (0, plain.stdout, plain.stderr)
    assert (here / "log").read_bytes() == out
    assert (here / "log.err").read_bytes() == err
    (here / "log").unlink()
    (here / "log.err").unlink()


def test_where_both_streams_go_to_one_place_their_order_is_kept(here: Path, tmp_path: Path) -> None:
    code = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    with open(tmp_path / "both", "wb") as both:
        command = [sys.executable, "-m", "diagnose", "run", "--", *python(code)]
        subprocess.run(command, stdout=both, stderr=both, env=environment({"TMPDIR": str(here)}), check=True)
    assert (tmp_path / "both").read_text().split() == [str(number) for number in range(2000)]


def test_output_comes_at_once(here: Path) -> None:
    code = "import sys; print('first', flush=True); sys.stdin.readline(); print('last')"
    with start("run", "--", *python(code), env={"TMPDIR": str(here)}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"  # while the command still waits
        out, _ = process.communicate(b"\n", timeout=_SHORT)
    assert out == b"last\n"


def test_a_failure_is_diagnosed_and_keeps_its_code(here: Path) -> None:
    outcome = run(here, "--", *python(FAILS))
    assert outcome.code == 1
    assert outcome.out == "step 1 loss 2.5\n"
    traceback, report = outcome.err.split("FAILED  ", 1)
    assert traceback.endswith("KeyError: 'role'\n")
    assert report.startswith("your code  KeyError")
    assert re.search(r"KeyError: 'role' +output.err:\d", report)


@pytest.mark.parametrize(
    "command, code, says",
    [
        ("exit 7", 7, "FAILED  cause not found"),
        ("kill -SEGV $$", 139, "SegmentationFault"),
        ("kill -KILL $$", 137, "ProcessKilled"),
        ("kill -TERM $$", 143, "FAILED"),
    ],
)
def test_the_code_is_a_shells(here: Path, command: str, code: int, says: str) -> None:
    outcome = run(here, "--", "sh", "-c", command)
    assert outcome.code == code
    assert says in outcome.err


def test_no_such_command(here: Path, tmp_path: Path) -> None:
    assert run(here, "--", "no-such-command") == Outcome(
        127, "", "diagnose: no-such-command: No such file or directory\n"
    )
    (tmp_path / "data").write_text("no program")
    outcome = run(here, "--", str(tmp_path / "data"))
    assert (outcome.code, outcome.err) == (126, f"diagnose: {tmp_path / 'data'}: Permission denied\n")


def test_wrong_usage_says_where_the_command_goes(here: Path) -> None:
    for arguments in (["python", "train.py"], [], ["--"], ["--log-size", "3", "--", "true"]):
        outcome = run(here, *arguments)
        assert outcome.code == 2
        assert "diagnose run -- COMMAND" in outcome.err or "from 1M to 1T" in outcome.err


def test_the_commands_own_options_are_its_own(here: Path) -> None:
    outcome = run(here, "-q", "--", "sh", "-c", 'echo "$@"; exit 5', "sh", "--exit-zero", "--", "--log", "x", "-q")
    assert (outcome.code, outcome.out) == (5, "--exit-zero -- --log x -q\n")


@pytest.mark.parametrize(
    "given, fails, expected",
    [
        ("--exit-map", FAILS, 100),
        ("--exit-map=stop=9,restart=8", FAILS, 9),
        ("--exit-map", "raise SystemExit(4)", 4),  # its cause is not found, so nobody knows better
        (
            "--exit-map",
            "print('torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered'); raise SystemExit(1)",
            201,
        ),
        ("--exit-map", "pass", 0),
    ],
)
def test_exit_codes_for_launchers(here: Path, given: str, fails: str, expected: int) -> None:
    outcome = run(here, given, "--", *python(fails))
    assert outcome.code == expected, outcome.err


def test_exit_maps() -> None:
    assert exit_map("") == {"stop": 100, "restart": 200, "elsewhere": 201}
    assert exit_map("stop=1, elsewhere=76") == {"stop": 1, "restart": 200, "elsewhere": 76}
    for wrong in ("stop", "stop=0", "stop=256", "go=1", "stop=99999999999999999999", "stop=²"):
        with pytest.raises(UsageError, match="say stop, restart or elsewhere"):
            exit_map(wrong)


def test_termination_message(here: Path, tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    message.write_text("older and longer" * 1000)
    long = "import sys; print('step 1'); raise KeyError('é' * 9000)"
    outcome = run(here, "-q", "--termination-log", str(message), "--", *python(long))
    assert outcome.code == 1
    text = message.read_bytes().decode()  # no half character
    assert text.startswith("exit code 1\nFAILED  your code  KeyError")
    assert message.stat().st_size <= 4096


@pytest.mark.parametrize("before", ["", "a"])
def test_a_termination_message_has_four_kilobytes_at_most_and_no_half_character(tmp_path: Path, before: str) -> None:
    message = tmp_path / "termination-log"
    message.write_text("older and longer" * 1000)
    write_termination(str(message), Answer({}, "", before + "é" * 9000), 1)
    assert 4095 <= message.stat().st_size <= 4096  # what Kubernetes keeps
    assert set(message.read_bytes().decode().removeprefix("exit code 1\n" + before)) == {"é"}


def test_a_termination_message_that_cannot_be_written_changes_nothing(here: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    outcome = run(here, "-q", "--termination-log", str(tmp_path / "link"), "--", *python(FAILS))
    assert outcome.code == 1
    assert "no termination message was written" in outcome.err
    assert not (tmp_path / "elsewhere").exists()


def test_report_for_programs(here: Path, tmp_path: Path) -> None:
    outcome = run(here, "--format", "json", "-o", str(tmp_path / "report.json"), "--", *python(FAILS))
    assert outcome.code == 1
    assert json.loads((tmp_path / "report.json").read_text())["error_type"] == "KeyError"


def test_failing_to_diagnose_changes_nothing(here: Path) -> None:
    outcome = run(here, "--exit-map", "--rules", "/no/such/rules", "--", *python(FAILS))
    assert outcome.code == 1
    assert "diagnose: not diagnosed: " in outcome.err


def test_a_diagnosis_that_takes_too_long_is_given_up(here: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "silent")
    outcome = run(here, "--seconds", "1", "--kernel-log", str(tmp_path / "silent"), "--", "false")
    assert outcome.code == 1
    assert "diagnose: not diagnosed: diagnosing took longer than 1 s" in outcome.err or "FAILED" in outcome.err


def test_no_room_for_temporary_files(tmp_path: Path) -> None:
    outcome = run(tmp_path / "absent", "--log", "/dev/full", "--", *python(FAILS))
    assert outcome.code == 1
    assert outcome.out == "step 1 loss 2.5\n"


def test_the_log_stays_within_its_size(here: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "for n in range(300_000): print('a line of output, number', n)\nraise ValueError('at the end')"
    outcome = run(here, "--log", str(log), "--log-size", "2M", "--", *python(code))
    assert outcome.out.count("\n") == 300_000
    assert log.stat().st_size <= 1024**2 + 200
    assert log.read_text().startswith("a line of output, number 0\n")
    assert "ValueError" in outcome.err.split("FAILED", 1)[1]


def test_a_reader_that_leaves_ends_the_command_as_without_us(here: Path) -> None:
    command = [sys.executable, "-m", "diagnose", "run", "-q", "--", "yes"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment({"TMPDIR": str(here)})
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(_SHORT) == 128 + signal.SIGPIPE


def test_what_others_still_write_is_passed_on(here: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    command = [sys.executable, "-m", "diagnose", "run", "-q", "--", "sh", "-c", f"(cat {go}; echo later) & exit 3"]
    with open(tmp_path / "out", "wb") as out:
        code = subprocess.run(
            command, check=False, stdout=out, stderr=subprocess.DEVNULL, env=environment({"TMPDIR": str(here)})
        )
    assert code.returncode == 3
    with open(go, "w") as release:
        release.write("released\n")
    until(tmp_path / "out", "later\n")


WAITS = """
import signal, sys, time
seen = open(sys.argv[1], 'a', buffering=1)
def note(number, frame):
    seen.write(signal.Signals(number).name + '\\n')
    if number != signal.SIGUSR1:
        time.sleep(0.3)  # a second signal would be seen
        sys.exit(9)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, note)
seen.write('ready\\n')
while True:
    time.sleep(60)
"""


def test_signals_reach_the_command(here: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with start("run", "--", *python(WAITS), str(seen), env={"TMPDIR": str(here)}) as process:
        until(seen, "ready")
        process.send_signal(signal.SIGUSR1)
        until(seen, "SIGUSR1")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=_SHORT)
    assert process.returncode == 9
    assert seen.read_text() == "ready\nSIGUSR1\nSIGTERM\n"
    assert b"FAILED" not in err  # that it ended when it was asked to proves nothing


def test_a_command_that_was_told_to_end_keeps_its_code_whatever_the_map(here: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = WAITS.replace("sys.exit(9)", "{}['role']")
    with start("run", "--exit-map", "--", *python(code), str(seen), env={"TMPDIR": str(here)}) as process:
        until(seen, "ready")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=_SHORT)
    assert process.returncode == 1
    assert b"KeyError" in err


@contextlib.contextmanager
def terminal(*arguments: str, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process whose controlling terminal is the other end of a descriptor."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x20\0\x63\0\0\0\0\0")  # 32 lines, 99 columns
    code = (
        "import fcntl, os, signal, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        # Whoever runs these tests in the background has it ignored, and so would we have, as nobody at a terminal has.
        "signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "os.execv(sys.executable, [sys.executable, '-m', 'diagnose', *sys.argv[1:]])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(env),
        cwd=ROOT,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def shown(terminal: int) -> str:
    """All that a terminal shows until its last writer has left."""
    text = b""
    while True:
        try:
            block = os.read(terminal, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return text.decode()
        if not block:
            return text.decode()
        text += block


def test_on_a_terminal_the_command_sees_one(here: Path) -> None:
    code = "import os, sys; print([os.isatty(n) for n in (0, 1, 2)], os.get_terminal_size(1)); sys.exit(0)"
    with terminal("run", "--", *python(code), env={"TMPDIR": str(here)}) as (process, screen):
        assert shown(screen) == "[True, True, True] os.terminal_size(columns=99, lines=32)\r\n"
        assert process.wait(_SHORT) == 0


def test_ctrl_c_comes_once_and_leaves_no_mess(here: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with terminal("run", "--", *python(WAITS), str(seen), env={"TMPDIR": str(here)}) as (process, screen):
        until(seen, "ready")
        os.write(screen, b"\x03")
        said = shown(screen)
        assert process.wait(_SHORT) == 9
    assert seen.read_text() == "ready\nSIGINT\n"
    assert "FAILED" not in said
    assert "Traceback" not in said


def test_how_often_the_kernel_killed_for_memory_is_known_or_not() -> None:
    assert oom_kills() is None or oom_kills() >= 0  # type: ignore[operator]


def test_the_readmes_example(here: Path) -> None:
    readme = Path(ROOT, "README.md").read_text("utf-8")
    shown = readme.split("<!-- run -->\n\n```text\n", 1)[1].split("\n```", 1)[0]
    command, said = shown.split("\n", 1)
    home = Path(tempfile.mkdtemp(prefix="ada"))  # a short name, as people have
    (home / "train.py").write_text(
        "batch = {'messages': []}\nprint('step 1 loss 2.31', flush=True)\n\n\n"
        "def collate(batch):\n    return batch['role']\n\n\ncollate(batch)\n"
    )
    line = (
        command.removeprefix("$ ")
        .replace("diagnose", f"{sys.executable} -m diagnose", 1)
        .replace("python train.py", f"{sys.executable} train.py")
    )
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=home,
        env=environment({"TMPDIR": str(here)}),
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(home)
    printed = (done.stdout + done.stderr).replace(str(home), "/home/ada").splitlines()
    assert [line for line in said.splitlines() if line not in (*printed, "...")] == []
    assert len(said.splitlines()) > 6
