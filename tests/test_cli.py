"""`diagnose LOG...` as people and schedulers call it: exit codes, options, files, pipes and errors."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.cli.arguments import SHELLS, diagnose_parser
from diagnose.cli.diagnose import _progress as progress_bar
from diagnose.cli.main import main
from diagnose.cli.options import Options, options_of
from tests.commandline import FAILED, FIXTURES, HEALTHY, Call, caller, environment, start

INCIDENT = os.path.join(FIXTURES, "incidents", "xid-cleanup-after-keyerror")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return caller(capsys, monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "job.log"
    path.write_text(FAILED)
    return str(path)


@pytest.fixture
def empty(tmp_path: Path) -> str:
    path = tmp_path / "empty.log"
    path.write_text("")
    return str(path)


def test_exit_codes(call: Call, log: str, empty: str, tmp_path: Path) -> None:
    assert call(log).code == 0
    assert call(HEALTHY).code == 1
    assert call(empty).code == 3
    assert call(str(tmp_path / "absent.log")).code == 2
    assert call().code == 2


@pytest.mark.parametrize("which", ["log", "healthy", "empty", "absent"])
def test_exit_zero(call: Call, log: str, empty: str, which: str) -> None:
    path = {"log": log, "healthy": HEALTHY, "empty": empty, "absent": log + ".absent"}[which]
    assert call(path, "--exit-zero").code == 0


def test_the_first_word_of_the_report_is_the_status(call: Call, log: str, empty: str) -> None:
    assert call(log).out.startswith("FAILED")
    assert call(HEALTHY).out.startswith("NO FAILURE")
    assert call(empty).out.startswith("INCONCLUSIVE")


OPTIONS: dict[str, list[str]] = {
    "--kernel-log": ["--kernel-log", os.path.join(INCIDENT, "cress.kmsg")],
    "--scheduler-record": ["--scheduler-record", "{sacct}"],
    "--inventory": ["--inventory", "{inventory}"],
    "--format": ["--format", "jsonl"],
    "--output": ["--output", "{report}"],
    "-o": ["-o", "{report}"],
    "--explain": ["--explain"],
    "--verbose": ["--verbose"],
    "-v": ["-v"],
    "--quiet": ["--quiet"],
    "-q": ["-q"],
    "--exit-zero": ["--exit-zero"],
    "--rules": ["--rules", "{site}"],
    "--no-llm": ["--no-llm"],
    "--llm-model": ["--llm-model", "a-model", "--no-llm"],
    "--record": ["--record", "--quiet"],
    "--job-id": ["--job-id", "4711"],
    "--name": ["--name", "pretrain"],
    "--user": ["--user", "ada"],
    "--image": ["--image", "train:1"],
    "--cluster": ["--cluster", "north"],
    "--project": ["--project", "lm"],
    "--version": ["--version"],
    "--help": ["--help"],
    "-h": ["-h"],
}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_works(call: Call, log: str, tmp_path: Path, option: str) -> None:
    (tmp_path / "sacct.txt").write_text("JobID|State|ExitCode\n4711|FAILED|1:0\n")
    (tmp_path / "inventory.csv").write_text("rank,host,gpu\n0,gx-001,0\n")
    (tmp_path / "site").mkdir()
    places = {
        "sacct": str(tmp_path / "sacct.txt"),
        "inventory": str(tmp_path / "inventory.csv"),
        "site": str(tmp_path / "site"),
        "report": str(tmp_path / "report.txt"),
    }
    done = call(log, *(word.format(**places) for word in OPTIONS[option]))
    assert (done.code, done.err) == (0, "")
    assert done.out or os.path.getsize(places["report"])


def test_no_option_is_left_untested() -> None:
    known = {text for action in diagnose_parser()._actions for text in action.option_strings}
    assert known == set(OPTIONS)


def test_repeatable_options_are_all_read(call: Call, log: str, tmp_path: Path) -> None:
    for name in ("a.dmesg", "b.dmesg"):
        (tmp_path / name).write_text("[   12.000000] usb 1-1: new device\n")
    done = call(
        log, "--kernel-log", str(tmp_path / "a.dmesg"), "--kernel-log", str(tmp_path / "b.dmesg"), "--format", "json"
    )
    kinds = [source["kind"] for source in json.loads(done.out)["coverage"]["sources"]]
    assert sorted(kinds) == ["job", "kernel", "kernel"]


# --output


def test_output_writes_the_report_and_nothing_else(call: Call, log: str, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    done = call(log, "--format", "json", "--output", str(target))
    assert (done.code, done.out, done.err) == (0, "", "")
    assert json.loads(target.read_text())["error_type"] == "KeyError"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.log", "report.json"]


def test_output_keeps_the_mode_of_the_file_it_replaces(call: Call, log: str, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")
    target.chmod(0o640)
    call(log, "-o", str(target))
    assert target.read_text().startswith("FAILED")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_output_has_no_colour(call: Call, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    call(log, "-o", str(tmp_path / "report.txt"))
    assert "\x1b" not in (tmp_path / "report.txt").read_text()


def test_output_through_a_link_leaves_the_link(call: Call, log: str, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    for name, target in (("old.txt", "reports/old.txt"), ("new.txt", str(tmp_path / "reports" / "new.txt"))):
        os.symlink(target, tmp_path / name)
    (tmp_path / "reports" / "old.txt").write_text("of yesterday")
    for name in ("old.txt", "new.txt"):
        assert call(log, "-o", str(tmp_path / name)).code == 0
        assert (tmp_path / name).is_symlink()
        assert "KeyError" in (tmp_path / "reports" / name).read_text()


def test_a_name_of_two_lines_is_told_on_one(call: Call, log: str) -> None:
    done = call(log, "-o", "a\nb/x")
    assert done.err == "diagnose: cannot write a\\nb/x: No such file or directory; choose another --output\n"
    assert call(log, "a\nb.log").err == "diagnose: a\\nb.log does not exist; the report does without it\n"


def test_output_through_a_circle_of_links_is_told(call: Call, log: str, tmp_path: Path) -> None:
    os.symlink("b", tmp_path / "a")
    os.symlink("a", tmp_path / "b")
    done = call(log, "-o", str(tmp_path / "a"))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"diagnose: cannot write {tmp_path / 'a'}: Too many levels of symbolic links")


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "link"])
def test_output_to_standard_output_goes_to_what_stands_there(log: str, tmp_path: Path, name: str) -> None:
    if not os.path.exists("/proc/self/fd/1"):
        pytest.skip("no /proc here")
    os.symlink("/proc/self/fd/1", tmp_path / "link")
    given = tmp_path / "all.txt"
    given.write_text("before\n")
    with given.open("a") as file:
        arguments = [sys.executable, "-m", "diagnose", log, "-o", name]
        subprocess.run(arguments, stdout=file, check=True, env=environment(), cwd=tmp_path)
    assert given.read_text().startswith("before\nFAILED")
    assert os.path.lexists("/dev/stdout")
    assert (tmp_path / "link").is_symlink()
    piped = subprocess.run(arguments, capture_output=True, check=True, env=environment(), cwd=tmp_path)
    assert piped.stdout.startswith(b"FAILED")


def test_output_to_a_device(call: Call, log: str) -> None:
    assert call(log, "-o", os.devnull).code == 0


def test_a_name_in_an_error_cannot_drive_the_terminal(call: Call, log: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "a\x1b[31m\u202e\n.yml").write_text("")
    for arguments in ([log, "--rules", str(site)], [log, "--output", "/no/\x1b[2Jx"], ["rules", "show", "\x1b[31m"]):
        told = call(*arguments)
        assert told.code == 2
        assert told.err.replace("\n", "").isprintable()


# Python holds back what it could not write and tries again at its end, unless the environment says otherwise.
BUFFERED = {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a system without /dev/full")
@pytest.mark.parametrize(
    ("arguments", "stream", "code"),
    [
        (["{none}"], "2", 2),
        (["--no-such-option"], "2", 2),
        (["{log}", "--kernel-log", "{none}"], "2", 0),
        (["rules", "show", "none"], "2", 2),
        (["--help"], "1", 2),
        (["--version"], "1", 2),
        (["{log}"], "1", 2),
    ],
)
def test_what_nobody_can_be_told_is_in_the_exit_code(
    log: str, tmp_path: Path, arguments: list[str], stream: str, code: int
) -> None:
    given = [word.format(log=log, none=tmp_path / "none") for word in arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "diagnose", *given],
            stdout=full if stream == "1" else subprocess.DEVNULL,
            stderr=full if stream == "2" else subprocess.DEVNULL,
            check=False,
            env=BUFFERED,
        )
    assert done.returncode == code


def test_too_little_memory_is_told_in_one_line(call: Call, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("diagnose.rules.bundle.load_bundled", greedy)
    told = call(log)
    assert told.code == 2
    assert told.err.startswith("diagnose: not enough memory")
    assert told.err.count("\n") == 1


def test_output_that_cannot_be_written_is_told_in_one_line(call: Call, log: str, tmp_path: Path) -> None:
    for target in (tmp_path / "absent" / "report.txt", tmp_path, Path(log) / "report.txt"):
        done = call(log, "--output", str(target))
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"diagnose: cannot write {target}: ")
        assert done.err.count("\n") == 1


def test_the_report_never_takes_the_place_of_what_is_read(call: Call, log: str, tmp_path: Path) -> None:
    kernel, record, units = (tmp_path / name for name in ("k.dmesg", "sacct.txt", "units.csv"))
    kernel.write_text("[   12.000000] usb 1-1: new device\n")
    record.write_text("JobID|State|ExitCode\n4711|FAILED|1:0\n")
    units.write_text("rank,host,gpu\n0,gx-001,0\n")
    (tmp_path / "soft").symlink_to(log)
    os.link(log, tmp_path / "hard")
    site = tmp_path / "site"
    site.mkdir()
    (site / "taxonomy.yml").write_text("")
    given = [log, "--kernel-log", str(kernel), "--scheduler-record", str(record), "--inventory", str(units)]
    for target in (log, *(str(tmp_path / name) for name in ("soft", "hard", "k.dmesg", "sacct.txt", "units.csv"))):
        before = Path(target).read_text()
        done = call(*given, "-o", target)
        assert (done.code, done.out) == (2, "")
        assert done.err == f"diagnose: cannot write {target}: it is one of the inputs; choose another --output\n"
        assert Path(target).read_text() == before
    assert call(str(tmp_path), "-o", log).code == 2
    assert call(f"{tmp_path}/*.log", "-o", log).code == 2
    assert call(log, "--rules", str(site), "-o", str(site / "taxonomy.yml")).code == 2


def test_a_report_may_stand_in_the_folder_that_is_read(call: Call, log: str, tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    for _ in range(2):  # the second time it is there, and by its name no log
        assert call(str(tmp_path), "--format", "markdown", "-o", str(target)).code == 0
    assert "KeyError" in target.read_text()


def test_the_report_does_not_replace_the_file_behind_standard_input(log: str) -> None:
    with open(log) as file:
        done = subprocess.run(
            [sys.executable, "-m", "diagnose", "-", "-o", log],
            stdin=file, capture_output=True, text=True, check=False, env=environment(),
        )  # fmt: skip
    assert (done.returncode, Path(log).read_text()) == (2, FAILED)
    assert "it is one of the inputs" in done.stderr


@pytest.mark.parametrize("option", [[], ["-q"], ["--format", "json"]])
def test_a_named_input_that_is_missing_is_told(call: Call, log: str, option: list[str]) -> None:
    absent = log + ".absent"
    for given in ([absent], ["--kernel-log", absent], ["--scheduler-record", absent]):
        done = call(log, *given, *option)
        assert done.code == 0
        assert "KeyError" in done.out
        assert ("job.log.absent" in done.out) == (option != ["-q"])
        assert done.err == f"diagnose: {absent} does not exist; the report does without it\n"
        assert call(log, *given[:-1], absent + "*", *option).err == ""


def test_a_folder_that_is_named_like_a_verb(
    call: Call, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "./rules" not in call("rules").err
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "job.log").write_text(FAILED)
    for given in (["rules"], ["rules", "-q"]):
        done = call(*given)
        assert done.code == 2
        assert done.err.endswith("a first word rules is a verb; the file or directory here is ./rules\n")
    assert call("./rules").code == 0
    assert "./rules" not in call("rules", "list", "--help").err


def test_output_is_whole_or_not_at_all(call: Call, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    done = call(log, "--output", str(target))
    monkeypatch.undo()
    assert done.code == 2
    assert "No space left" in done.err
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.log", "report.txt"]


def test_an_input_error_leaves_the_old_output_alone(call: Call, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")
    assert call(str(tmp_path / "absent.log"), "-o", str(target)).code == 2
    assert target.read_text() == "old"


# How much is shown


def test_quiet_is_the_first_line(call: Call, log: str) -> None:
    assert call(log, "-q").out == call(log).out.split("\n")[0] + "\n"


def test_quiet_leaves_machine_formats_whole(call: Call, log: str) -> None:
    assert json.loads(call(log, "-q", "--format", "json").out)["status"] == "failed"


def test_verbose_shortens_nothing(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(FAILED.replace("'x'", repr("long " * 60 + "end")))
    assert "long end" not in call(str(log)).out
    assert "long end" in call(str(log), "-v").out


def test_explain_shows_the_findings(call: Call, log: str) -> None:
    plain, explained = call(log).out, call(log, "--explain").out
    assert "Findings, and what explains them" in explained
    assert "nothing explains it" in explained
    assert "Policy row" in explained
    assert "Findings" not in plain


@pytest.mark.parametrize(
    ("env", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
    ],
)
def test_colour(call: Call, log: str, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], coloured: bool) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in call(log).out) is coloured
    assert "\x1b" not in call(log, "--format", "json").out
    assert "\x1b" not in call(log, "--format", "markdown").out


def test_colour_changes_no_word(call: Call, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_time(text: str) -> str:
        return re.sub(r"\d+\.\d s", "", text)

    plain = call(log).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert without_time(re.sub(r"\x1b\[[0-9;]*m", "", call(log).out)) == without_time(plain)


# Inputs


def test_standard_input(call: Call) -> None:
    done = call("-", "--format", "json", stdin=FAILED.encode())
    assert done.code == 0
    assert json.loads(done.out)["error_type"] == "KeyError"


def test_standard_input_as_kernel_log(call: Call, log: str) -> None:
    done = call(log, "--kernel-log", "-", "--format", "json", stdin=b"[   12.000000] usb 1-1: new device\n")
    kinds = [source["kind"] for source in json.loads(done.out)["coverage"]["sources"]]
    assert sorted(kinds) == ["job", "kernel"]


def test_standard_input_of_any_bytes(call: Call) -> None:
    assert call("-", stdin=bytes(range(1, 256)) * 50).code in (0, 1, 2, 3)


@pytest.mark.parametrize("name", ["rules", "completion"])
def test_a_file_named_like_a_verb(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(FAILED)
    done = call(f"./{name}")
    assert done.code == 0
    assert "KeyError" in done.out


def test_a_directory_and_a_glob(call: Call, log: str, tmp_path: Path) -> None:
    assert "KeyError" in call(str(tmp_path)).out
    assert "KeyError" in call(str(tmp_path / "*.log")).out


# Errors


def told(text: str) -> str:
    """An error message as one string without its line breaks."""
    assert "Traceback" not in text
    return " ".join(text.split())


def test_nothing_named(call: Call) -> None:
    done = call()
    assert "nothing to read" in told(done.err)
    assert "usage:" in done.err


def test_unknown_option(call: Call, log: str) -> None:
    done = call("--frobnicate", log)
    assert (done.code, done.out) == (2, "")
    assert "--frobnicate" in told(done.err)


def test_options_are_not_abbreviated(call: Call, log: str) -> None:
    assert call(log, "--verb").code == 2


def test_unknown_format(call: Call, log: str) -> None:
    done = call(log, "--format", "xml")
    assert done.code == 2
    assert "markdown" in told(done.err)


def test_missing_file(call: Call, tmp_path: Path) -> None:
    done = call(str(tmp_path / "absent.log"))
    assert (done.code, done.out) == (2, "")
    assert "absent.log" in told(done.err)
    assert "does not exist" in done.err


def test_a_missing_file_beside_others_is_reported_not_fatal(call: Call, log: str) -> None:
    done = call(log, log + ".absent")
    assert done.code == 0
    assert "job.log.absent" in done.out


@pytest.mark.parametrize("kind", ["absent", "file", "broken"])
def test_unusable_rules(call: Call, log: str, tmp_path: Path, kind: str) -> None:
    site = tmp_path / "site"
    if kind == "file":
        site.write_text("")
    elif kind == "broken":
        (site / "diagnoses" / "cuda").mkdir(parents=True)
        (site / "diagnoses" / "cuda" / "mine.yml").write_text("id: [")
    done = call(log, "--rules", str(site))
    assert (done.code, done.out) == (2, "")
    assert "site" in told(done.err)


def test_rules_that_may_not_be_read(call: Call, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    real = os.scandir

    def scandir(path: str) -> object:  # permissions do not bind the super-user, who may run the tests
        if str(path).startswith(str(site)):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    done = call(log, "--rules", str(site))
    assert (done.code, done.out) == (2, "")
    assert "cannot be listed: Permission denied" in told(done.err)


def test_an_unusable_inventory(call: Call, log: str, tmp_path: Path) -> None:
    done = call(log, "--inventory", str(tmp_path / "absent.csv"))
    assert done.code == 2
    assert "absent.csv" in told(done.err)


# Processes


def test_module_and_help_in_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "diagnose", "--help"], capture_output=True, text=True, check=True, env=environment()
    )
    assert "exit codes:" in done.stdout


@pytest.mark.parametrize("arguments", [["{log}", "-v"], ["rules", "schema"], ["rules", "list"]])
def test_a_reader_that_leaves_is_no_error(log: str, arguments: list[str]) -> None:
    process = start(*(word.format(log=log) for word in arguments))
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.close()
    error = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), error) == (0, b"")


def test_a_pipe_to_head(log: str) -> None:
    line = f"{sys.executable} -m diagnose {log} | head -0"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True, env=environment())
    assert (done.stdout, done.stderr) == ("", "")


def test_a_full_disk_is_told_in_one_line(log: str) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    line = f"{sys.executable} -m diagnose {log} > /dev/full"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 2
    assert "No space left" in told(done.stderr)


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-"])
def test_closed_standard_streams_are_no_crash(log: str, closed: str) -> None:
    line = f"{sys.executable} -m diagnose {log} {closed}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr


def test_interrupt() -> None:
    process = start("-")
    assert process.stdin
    process.stdin.write(b"step 1\n" * 100_000)  # more than a pipe holds: written only once the other side reads
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert error == b"\ndiagnose: interrupted\n"


@pytest.mark.parametrize(("number", "told"), [(signal.SIGTERM, b"terminated"), (signal.SIGHUP, b"hung up")])
def test_being_asked_to_end(number: signal.Signals, told: bytes) -> None:
    process = start("-")
    assert process.stdin
    process.stdin.write(b"step 1\n" * 100_000)
    process.stdin.flush()
    process.send_signal(number)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (128 + number, b"", b"diagnose: " + told + b"\n")


def test_hanging_up_is_not_heard_under_nohup(log: str) -> None:
    line = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from diagnose.cli.main import main; "
    line += f"os.kill(os.getpid(), signal.SIGHUP); sys.exit(main([{log!r}]))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, check=False, env=environment())
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_signal_leaves_handlers_and_no_half_written_file(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr("os.chmod", lambda *_: signal.raise_signal(signal.SIGTERM))
    assert main([log, "-o", str(out / "report.txt")]) == 143
    assert list(out.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_interrupt_while_modules_are_loaded() -> None:
    """Loading takes most of a small run: the earlier the signal, the more is in the middle of it."""
    line = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); import diagnose.start; "
        "find = type('', (), {'find_spec': lambda _self, name, *_: signal.raise_signal(signal.SIGINT)})(); "
        "sys.meta_path.insert(0, find); sys.exit(diagnose.start.main())"
    )
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, check=False, env=environment())
    assert (done.returncode, done.stderr) == (130, b"\ndiagnose: interrupted\n")


@pytest.mark.parametrize(
    "arguments", [["../x.log"], ["--rules", "../rules", "../x.log"], ["rules", "lint", "../x.log"]]
)
def test_relative_paths_from_a_removed_directory(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "x.log").write_text(FAILED)
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); from diagnose.start import main; "
    done = subprocess.run(
        [sys.executable, "-c", f"{line}import sys; sys.argv[1:] = {arguments!r}; sys.exit(main())"],
        capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 2
    assert "the working directory was removed" in done.stderr


# Completion


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts(call: Call, shell: str) -> None:
    done = call("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "diagnose" in done.out


def test_completion_of_an_unknown_shell(call: Call) -> None:
    assert call("completion", "csh").code == 2


def completions(line: str, folder: Path) -> set[str]:
    """What the shell would offer at the end of a line."""
    answer = folder / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run(
        [sys.executable, "-m", "diagnose"], check=True, capture_output=True, cwd=folder, env=environment(asked)
    )
    return {word.strip() for word in answer.read_text().split("\n") if word.strip()}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("diagnose --ker", {"--kernel-log"}),
        ("diagnose --format js", {"json", "jsonl"}),
        ("diagnose rul", {"rules"}),
        ("diagnose rules sh", {"show"}),
        ("diagnose rules list --sta", {"--status"}),
        ("diagnose completion ", {"bash", "zsh", "fish"}),
        ("diagnose slurm-", {"slurm-4711.out"}),
    ],
)
def test_completion_answers(tmp_path: Path, line: str, offered: set[str]) -> None:
    (tmp_path / "slurm-4711.out").write_text("")
    assert completions(line, tmp_path) >= offered


def test_a_defect_of_the_tool_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("a defect")

    monkeypatch.setattr("diagnose.pipeline.diagnose", broken)
    log = tmp_path / "job.log"
    log.write_text("step 1\n")
    outcome = caller(capsys, monkeypatch)(str(log))
    assert outcome.code == 2
    assert "internal error (TypeError)" in outcome.err
    assert "a defect" in outcome.err


@pytest.mark.parametrize(("columns", "widest"), [("60", 60), ("160", 160), ("", 100), ("wide", 100), ("0", 100)])
def test_columns_are_honoured(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str, widest: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    log = tmp_path / "job.log"
    log.write_text(FAILED.replace("'x'", "'" + "a long key " * 40 + "'"))
    rows = call(str(log)).out.splitlines()
    assert widest - 25 < max(len(row) for row in rows[1:]) <= widest
    assert max(len(row) for row in call(str(log), "-o", str(tmp_path / "out.txt")).out.splitlines() or [""]) == 0
    written = (tmp_path / "out.txt").read_text().splitlines()
    assert max(len(row) for row in written[1:]) <= widest


def test_the_bar_comes_after_a_second(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("diagnose.cli.diagnose.time.monotonic", lambda: now[0])
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar(shown=True) as on_progress:
        assert on_progress is not None
        on_progress(1, 10)
        assert capsys.readouterr().err == ""
        now[0] += 1.5
        on_progress(5, 10)
    assert "reading" in capsys.readouterr().err
    with progress_bar(shown=False) as on_progress:
        assert on_progress is None


@pytest.mark.parametrize("names", [["a.log"], ["-"], ["a", "-", "b c", ""]])
def test_names_alone_are_read_as_the_parser_reads_them(names: list[str]) -> None:
    assert options_of(names) == diagnose_parser().parse_args(names, namespace=Options())
    assert options_of([*names, "--quiet"]) == Options(logs=names, quiet=True)
    assert options_of(["--", *names]) == Options(logs=names)
