"""Whether `diagnose ship` slows the job whose logs it follows: wall time and latency of writes, in pairs.

    python benchmarks/ship.py [--rates 0.01,1,20] [--service up,away,slow] [--sessions same,own] [--pairs 5]
                              [--seconds 10] [--folder DIR] [--json FILE]

A job is one process on each of two cores, bound to it. Each writes lines, one at a time, and between them does a fixed
amount of work (SHA-256 of so many bytes), chosen so that both together write `--rates` MB/s while the processor is
never idle: whatever else runs there makes the job longer. Each run with `diagnose ship` is paired with one without it,
in turn the one first and the other; ship starts together with the job, so that its own start counts.

`--service`: `up` answers at once, `slow` two seconds later, `away` is not there. It is a double that counts what it
gets, at the lowest priority, so that the service's own work, which is another machine's, is not measured.
`--sessions`: where the kernel schedules sessions as groups, nice says nothing between them. `own`: each process of the
job has a session of its own, as those of torchrun and srun have; `same`: all are in ship's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import logs

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

CORES = 2
SLOW = 2.0  # seconds
SAMPLE = 1_000_000  # bytes of a log that is written over and over
_BLOCK = bytes(1 << 16)


def work(size: int) -> None:
    """The work of a line: this many bytes hashed."""
    while size > 0:
        hashlib.sha256(memoryview(_BLOCK)[:size])
        size -= len(_BLOCK)


def rank(core: int, log: str, sample: str, count: int, size: int, begin: float) -> dict[str, float]:
    """What a process of the job does: `count` lines; its wall time, and how long writes took."""
    os.sched_setaffinity(0, {core})
    lines = Path(sample).read_bytes().splitlines(keepends=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    took: list[int] = []
    clock = time.perf_counter_ns
    while time.time() < begin:
        pass
    start = clock()
    for at in range(count):
        work(size)
        before = clock()
        os.write(file, lines[at % len(lines)])
        took.append(clock() - before)
    wall = (clock() - start) / 1e9
    took.sort()
    return {"wall": wall, "p99": took[int(len(took) * 0.99)] / 1e3, "most": took[-1] / 1e3}


def double(socket_number: int, wait: float) -> None:
    """A service that takes every chunk and forgets it."""
    from diagnose.keeping import Keeping
    from diagnose.rules.bundle import load_bundled
    from diagnose.service.chunks import expanded

    guard = Keeping(load_bundled()).guard

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        known: ClassVar[dict[str, int]] = {}

        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).path)

        def do_PUT(self) -> None:
            given = urlsplit(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            plain = expanded(body, self.headers.get("Content-Encoding", ""), 1 << 26)
            self.known[given.path] = int(parse_qs(given.query)["offset"][0]) + len(plain)
            self._answer(given.path)

        def _answer(self, path: str) -> None:
            time.sleep(wait)
            body = json.dumps({"generation": 0, "offset": self.known.get(path, 0), "guard": guard}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket = socket.socket(fileno=socket_number)
    server.server_address = server.socket.getsockname()
    server.server_name, server.server_port = "127.0.0.1", server.server_address[1]
    print("ready", flush=True)
    os.nice(19)
    if os.path.exists("/proc/self/autogroup"):
        Path("/proc/self/autogroup").write_text("19")
    server.serve_forever()


class Service:
    """The double, in a process and a session of its own; nothing where it is away."""

    def __init__(self, how: str) -> None:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._process = None
        if how != "away":
            listening.listen(64)
            wait = SLOW if how == "slow" else 0.0
            call = f"import ship; ship.double({listening.fileno()}, {wait})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", call], cwd=Path(__file__).parent, start_new_session=True,
                pass_fds=[listening.fileno()], stdout=subprocess.PIPE, env=environment(),
            )  # fmt: skip
            if not self._process.stdout or b"ready" not in self._process.stdout.readline():
                raise SystemExit("the double of the service does not start")
        listening.close()

    def end(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def environment() -> dict[str, str]:
    """What processes are started with."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def calibrated(sample: Path, folder: Path) -> float:
    """How many bytes a processor hashes in a second, both being busy, line by line."""
    size = 40_000
    found = [
        one
        for _ in range(3)
        for one in job(folder, sample, [20_000] * CORES, [size] * CORES, own=True)["ranks"]
    ]  # fmt: skip
    return statistics.median(20_000 * size / one["wall"] for one in found)


def job(folder: Path, sample: Path, counts: list[int], sizes: list[int], *, own: bool) -> dict[str, Any]:
    """The job: a process on each core, from one moment on."""
    begin = time.time() + 0.5
    running = []
    for core in range(CORES):
        log = folder / f"rank{core}.log"
        how = (core, str(log), str(sample), counts[core], sizes[core], begin)
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", f"import json, ship; print(json.dumps(ship.rank(*{how!r})))"],
                cwd=Path(__file__).parent,
                env=environment(),
                stdout=subprocess.PIPE,
                start_new_session=own,
            )
        )
    return {"ranks": [json.loads(one.communicate()[0]) for one in running]}


def run(folder: Path, sample: Path, how: dict[str, Any], address: str | None) -> dict[str, float]:
    """One run of the job, with ship where there is an address."""
    for old in folder.glob("rank*.log"):
        old.unlink()
    shipping = stand_in = None
    if address is not None:
        stand_in = subprocess.Popen(["sleep", "3600"])
        state = tempfile.mkdtemp(dir=folder)
        shipping = subprocess.Popen(
            [
                sys.executable, "-m", "diagnose", "ship", *(str(folder / f"rank{core}.log") for core in range(CORES)),
                "--job", str(time.time_ns()), "--service", address, "--until-exit", str(stand_in.pid), "--grace",
                "1" if how["service"] == "away" else "120", "-q",
            ],
            env={**environment(), "XDG_STATE_HOME": state, "XDG_CACHE_HOME": str(folder / "cache")},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    ranks = job(folder, sample, how["counts"], how["sizes"], own=how["session"] == "own")["ranks"]
    found = {name: max(one[name] for one in ranks) for name in ("wall", "p99", "most")}
    if shipping is not None and stand_in is not None:
        stat = Path(f"/proc/{shipping.pid}/stat").read_text().rpartition(")")[2].split()
        found["ship_cpu_meanwhile"] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        ended = time.monotonic()
        stand_in.send_signal(signal.SIGKILL)
        stand_in.wait()
        _, status, usage = os.wait4(shipping.pid, 0)
        shipping.returncode = os.waitstatus_to_exitcode(status)
        found |= {
            "ship_exit": shipping.returncode,
            "ship_cpu": usage.ru_utime + usage.ru_stime,
            "ship_peak_mb": usage.ru_maxrss / 1024,
            "ship_behind": time.monotonic() - ended,
        }
    return found


def pairs(folder: Path, sample: Path, how: dict[str, Any], count: int) -> dict[str, Any]:
    """Runs with ship and without, in turn."""
    service = Service(how["service"])
    both = []
    try:
        for at in range(count):
            found: dict[bool, dict[str, float]] = {}
            for ships in (True, False) if at % 2 else (False, True):
                found[ships] = run(folder, sample, how, service.address if ships else None)
            both.append((found[False], found[True]))
    finally:
        service.end()

    def spread(values: list[float]) -> list[float]:
        return [round(one, 4) for one in (statistics.median(values), min(values), max(values))]

    told = {name: how[name] for name in ("rate", "service", "session")}
    return {
        **told,
        "pairs": count,
        "load": round(os.getloadavg()[0], 2),
        "wall_ratio": spread([with_["wall"] / without["wall"] for without, with_ in both]),
        "p99_ratio": spread([with_["p99"] / without["p99"] for without, with_ in both]),
        **{f"{name}_without": spread([without[name] for without, _ in both]) for name in ("wall", "p99", "most")},
        **{name: spread([with_[name] for _, with_ in both]) for name in both[0][1]},
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="whether ship slows the job whose logs it follows")
    parser.add_argument("--rates", default="0.01,1,20", help="MB/s that the job writes (default 0.01,1,20)")
    parser.add_argument("--service", default="up,away,slow", help="of up, away and slow (default all)")
    parser.add_argument("--sessions", default="same,own", help="of same and own (default both)")
    parser.add_argument("--pairs", type=int, default=5, help="runs with and without (default 5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="that the job takes (default 10)")
    parser.add_argument("--folder", help="where the logs lie (default below /tmp)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        sample = folder / "sample"
        mean = SAMPLE / logs.write(sample, "routine", SAMPLE)
        speed = calibrated(sample, folder)
        warm = {"rate": 1, "service": "away", "session": "own", "counts": [100] * CORES, "sizes": [1] * CORES}
        run(folder, sample, warm, "http://127.0.0.1:9")  # fills the caches
        for rate in (float(one) for one in options.rates.split(",")):
            count = max(1, int(rate * 1e6 * options.seconds / mean / CORES))
            size = int(speed * options.seconds / count)
            for session in options.sessions.split(","):
                for service in options.service.split(","):
                    how = {"rate": rate, "service": service, "session": session}
                    how |= {"counts": [count] * CORES, "sizes": [size] * CORES}
                    found = pairs(folder, sample, how, options.pairs)
                    results.append(found)
                    print(json.dumps(found), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
