"""How the service keeps up: verdicts of 1 MB logs, open loop, and logs that come while their jobs run.

    python benchmarks/service.py                       10 arrivals/s over 32 connections for 60 s, on both
    python benchmarks/service.py --rate 10 --seconds 20 --on postgres
    python benchmarks/service.py --highest             the highest rate that it sustains
    python benchmarks/service.py --streams 200         200 jobs that stream 2 MB/s together for 5 minutes

Each arrival is one request: a form with the job and a 1 MB log, `Prefer: wait=30`; its latency counts from when it was
to be sent, so a service that falls behind cannot hide it. The load generator is a process of its own whose CPU is
reported; memory is that of all processes of the service.

A stream sends what its job has printed every 2 s, as `diagnose ship` does; after their time the jobs end, five each
second, while the others go on. A verdict's latency counts from when the waiting for late ranks is over. Then every log
in the spool is compared with what was sent, byte by byte.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import queue
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

CONNECTIONS = 32
SIZE = 1_000_000
P99 = 0.600
PERIOD = 2.0  # seconds between chunks of a stream
ENDS = 5.0  # streams that end each second
LEAST = 10.0  # seconds after its end at which a job is diagnosed at the earliest


def logs(most: int = SIZE) -> list[bytes]:
    """Failed jobs of about 1 MB, or as much as is wanted: steps, and a failure of another kind at the end of each."""
    error = "Traceback (most recent call last):\n  File \"/job/train.py\", line 12, in step\n    item = batch['role']\n"
    full = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.19 GiB is"
    )
    ends = (
        f"{error}KeyError: 'r'\n",
        f"[rank3]: torch.OutOfMemoryError: {full} free.\n",
        "OSError: [Errno 28] No space left on device: '/ckpt/step_100'\n",
        "slurmstepd: error: *** JOB 4711 ON gx-012 CANCELLED AT 2026-10-01T03:00:00 DUE TO TIME LIMIT ***\n",
    )
    made = []
    dice = random.Random(7)
    for end in ends:
        lines, size, step = [], 0, 0
        while size < most - len(end):
            step += 1
            stamp = f"2026-10-01 {step // 3600 % 24:02}:{step // 60 % 60:02}:{step % 60:02}"
            line = (
                f"{stamp} INFO [rank0] step {step} loss {dice.uniform(1, 3):.4f} lr 3.0e-04 grad_norm "
                f"{dice.uniform(0, 2):.3f} tokens/s {dice.randint(90_000, 99_000)}\n"
                if step % 40
                else f"{stamp} WARNING [rank0] loader waited {dice.randint(1, 900)} ms for {dice.randint(0, 9999)}\n"
            )
            lines.append(line)
            size += len(line)
        made.append(("".join(lines) + end).encode())
    return made


async def _load(url: str, rate: float, seconds: float, prefix: str) -> dict[str, Any]:
    import httpx

    texts = logs()
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    latencies: list[float] = []
    errors: list[str] = []
    late = 0.0
    boundary = "benchmark"
    bodies = []
    for text in texts:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="logs"; filename="job.log"\r\n\r\n'.encode()
        bodies.append(head + text + f"\r\n--{boundary}--\r\n".encode())
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60.0) as client:

        async def one(number: int, due: float) -> None:
            job = json.dumps({"job_id": f"{prefix}-{number}"})
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="job"\r\n\r\n{job}\r\n'.encode()
            try:
                answer = await client.post(
                    "/v1/diagnoses",
                    content=head + bodies[number % len(bodies)],
                    headers={"Content-Type": f"multipart/form-data; boundary={boundary}", "Prefer": "wait=30"},
                )
                if answer.status_code != 200 or answer.headers.get("diagnosis-state") != "done":
                    errors.append(f"{answer.status_code} {answer.text[:100]}")
                elif not answer.json().get("error_type"):
                    errors.append("no verdict")
            except httpx.HTTPError as error:
                errors.append(type(error).__name__)
            latencies.append(time.perf_counter() - due)

        for number in range(2 * len(bodies)):  # warm
            await one(-1 - number, time.perf_counter())
        latencies.clear()
        cpu, start = time.process_time(), time.perf_counter()
        tasks = []
        for number in range(int(rate * seconds)):
            due = start + number / rate
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            late = max(late, time.perf_counter() - due)
            tasks.append(asyncio.create_task(one(number, due)))
        await asyncio.gather(*tasks)
        taken = time.perf_counter() - start
    latencies.sort()
    return {
        "arrivals": len(latencies),
        "errors": len(errors),
        "said": errors[:3],
        "p50": latencies[len(latencies) // 2],
        "p95": latencies[int(len(latencies) * 0.95)],
        "p99": latencies[int(len(latencies) * 0.99)],
        "most": latencies[-1],
        "done_per_s": len(latencies) / taken,
        "late": late,
        "cpu": (time.process_time() - cpu) / taken,
    }


class Printing:
    """What a job prints: the log of a failed one, whose failure comes when it ends. `sent` bytes of it were sent."""

    def __init__(self, text: bytes, sent: int = 0) -> None:
        last = text.find(b"\n", text.rfind(b" [rank0] ")) + 1
        self._steps, self._failure = text[:last], text[last:]
        self.sent = sent

    def next(self, size: int) -> bytes:
        """So many more bytes."""
        return self._steps[self.sent : self.sent + size]

    def last(self) -> bytes:
        """The rest of its line, and how it fails."""
        return self._steps[self.sent : self._steps.find(b"\n", self.sent) + 1] + self._failure

    def whole(self) -> bytes:
        """All that it has printed."""
        return self._steps[: self.sent] + self.last()


def printed(count: int, rate: float, seconds: float) -> list[bytes]:
    """Logs that are long enough for streams of so many bytes a second together."""
    return logs(int(rate / count * (seconds + count / ENDS + 10 * PERIOD)) + 10_000)


async def _stream(url: str, count: int, rate: float, seconds: float) -> dict[str, Any]:
    import httpx

    texts = printed(count, rate, seconds)
    jobs = [Printing(texts[number % len(texts)]) for number in range(count)]
    chunk = int(rate * PERIOD / count)
    appends: list[float] = []
    verdicts: list[float] = []
    errors: list[str] = []
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60.0) as client:

        async def put(number: int, data: bytes) -> None:
            job, began = jobs[number], time.perf_counter()
            path = f"/v1/jobs/gx/s{number}/0/logs/job.log?offset={job.sent}"
            answer = await client.put(path, content=data)
            appends.append(time.perf_counter() - began)
            if answer.status_code != 200 or answer.json()["offset"] != job.sent + len(data):
                errors.append(f"{answer.status_code} {answer.text[:100]}")

        async def one(number: int) -> None:
            job = jobs[number]
            begins = start + PERIOD * number / count
            over = start + seconds + number / ENDS
            for turn in itertools.count():
                due = begins + PERIOD * turn
                if due >= over:
                    break
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await put(number, job.next(chunk))
                job.sent += chunk
            await put(number, job.last())
            answer = await client.post(f"/v1/jobs/gx/s{number}/0/end", json={"exit": {"code": 1}})
            quiet = time.perf_counter() + LEAST
            await asyncio.sleep(LEAST)
            said = await client.get(answer.headers["location"], headers={"Prefer": "wait=30"})
            verdicts.append(time.perf_counter() - quiet)
            if said.headers.get("diagnosis-state") != "done" or not said.json().get("error_type"):
                errors.append(f"{said.status_code} {said.text[:100]}")

        cpu, start = time.process_time(), time.perf_counter() + 1.0
        await asyncio.gather(*(one(number) for number in range(count)))
        taken = time.perf_counter() - start
    appends.sort()
    verdicts.sort()
    return {
        "errors": len(errors),
        "said": errors[:3],
        "appends": appends,
        "verdicts": verdicts,
        "sent": [job.sent for job in jobs],
        "cpu": (time.process_time() - cpu) / taken,
    }


def _generate(results: Any, load: Any, *how: Any) -> None:
    results.put(asyncio.run(load(*how)))


def resident(groups: list[int]) -> int:
    """The memory of all processes of some process groups, in bytes (what they share is counted for each)."""
    total = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                group = int(file.read().rpartition(")")[2].split()[2])
            if group in groups:
                with open(f"/proc/{entry}/statm", encoding="ascii") as file:
                    total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            continue
    return total


def run(made: Any, load: Any, *how: Any) -> tuple[dict[str, Any], list[int]]:
    """One run of a load against a service that is up, and the memory that it had each second."""
    results: Any = multiprocessing.Queue()
    groups = [process.pid for process in made.running]
    process = multiprocessing.Process(target=_generate, args=(results, load, made.url, *how))
    process.start()
    memory: list[int] = []
    while process.is_alive():
        memory.append(resident(groups))
        with contextlib.suppress(queue.Empty):
            found = results.get(timeout=1.0)
            process.join()
            return found, memory
    raise RuntimeError("the load generator has ended")


def measure(made: Any, rate: float, seconds: float, prefix: str) -> dict[str, Any]:
    """Whole logs, so many a second."""
    found, memory = run(made, _load, rate, seconds, prefix)
    settled = memory[len(memory) // 3 :] or memory
    return {**found, "rate": rate, "memory": max(settled), "grown": settled[-1] - settled[0]}


def stream(made: Any, folder: Path, count: int, rate: float, seconds: float) -> str:
    """Logs that come while their jobs run, compared with what was sent; a line of figures."""
    from diagnose.service.streams import JobKey, snapshot_of
    from diagnose.service.work import place

    groups = [process.pid for process in made.running]
    before = resident(groups)
    found, memory = run(made, _stream, count, rate, seconds)
    differ, size, texts = 0, 0, printed(count, rate, seconds)
    for number, sent in enumerate(found["sent"]):
        into = folder / f"compared-{number}"
        into.mkdir()
        streams, key = os.path.join(made.environment["DIAGNOSE_SPOOL"], "streams"), JobKey("", "gx", f"s{number}")
        paths = snapshot_of(streams, key, str(into), place, _no_keeping)
        whole = Printing(texts[number % len(texts)], sent).whole()
        size += len(whole)
        differ += [(into / path).read_bytes() for path in paths] != [whole]
        shutil.rmtree(into)
    chunks, verdicts = found["appends"], found["verdicts"]
    return (
        f"{count} streams, {rate / 1e6:.1f} MB/s for {seconds:.0f} s: {size / 1e6:.0f} MB, {differ} differ  "
        f"chunks p50 {_ms(chunks, 0.5)}  p99 {_ms(chunks, 0.99)}  most {_ms(chunks, 1)} ms  "
        f"verdicts p50 {_ms(verdicts, 0.5)}  p95 {_ms(verdicts, 0.95)}  most {_ms(verdicts, 1)} ms after quiet  "
        f"errors {found['errors']}  "
        f"memory {max(memory) >> 20} MB, {(max(memory) - before) / count / (1 << 20):.2f} MB more for each job  "
        f"generator {found['cpu'] * 100:.0f} % of a core" + (f"  {found['said']}" if found["said"] else "")
    )


def _ms(latencies: list[float], share: float) -> str:
    """That of the latencies below which a share of them is, in milliseconds."""
    return f"{latencies[min(int(len(latencies) * share), len(latencies) - 1)] * 1000:.0f}"


def _no_keeping() -> Any:
    raise RuntimeError("a log of a few megabytes has been compressed")


def told(where: str, found: dict[str, Any]) -> str:
    """A line of figures."""
    return (
        f"{where:9} {found['rate']:5.1f}/s  p50 {found['p50'] * 1000:5.0f}  p95 {found['p95'] * 1000:5.0f}  "
        f"p99 {found['p99'] * 1000:5.0f}  most {found['most'] * 1000:5.0f} ms  errors {found['errors']}  "
        f"memory {found['memory'] >> 20} MB ({found['grown'] / (1 << 20):+.0f})  "
        f"generator {found['cpu'] * 100:.0f} % of a core, {found['late'] * 1000:.0f} ms late at most"
        + (f"  {found['said']}" if found["said"] else "")
    )


def on(where: str, folder: Path, options: argparse.Namespace) -> None:
    """All runs on one kind of database."""
    from tests.stores import restartable_postgres
    from tests.topology import site

    with restartable_postgres() as server:
        address = server.uri if where == "postgres" else str(folder / "memory.sqlite3")
        processes = str(options.processes)
        with site(folder, address, DIAGNOSE_PROCESSES=processes) as made:
            made.serve()
            if where == "postgres":
                made.worker()
            time.sleep(3)
            if options.streams:
                said = stream(made, folder, options.streams, options.megabytes * 1e6, options.seconds or 300.0)
                print(f"{where:9} {said}", flush=True)
                return
            if not options.highest:
                print(told(where, measure(made, options.rate, options.seconds or 60.0, "run")), flush=True)
                return
            rate, best = options.rate, 0.0
            while True:
                found = measure(made, rate, options.seconds or 60.0, f"r{rate:.0f}")
                print(told(where, found), flush=True)
                if found["errors"] or found["p99"] > P99:
                    break
                best, rate = rate, rate * 1.25
            print(f"{where}: sustains {best:.1f} arrivals/s with p99 < {P99 * 1000:.0f} ms", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="how the service keeps up")
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, help="60, and 300 for streams")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--on", choices=("postgres", "embedded", "both"), default="both")
    parser.add_argument("--highest", action="store_true", help="raise the rate until it is too much")
    parser.add_argument("--streams", type=int, metavar="JOBS", help="logs that come while so many jobs run")
    parser.add_argument("--megabytes", type=float, default=2.0, help="that all streams together send each second")
    options = parser.parse_args()
    for where in ("postgres", "embedded") if options.on == "both" else (options.on,):
        with tempfile.TemporaryDirectory() as folder:
            on(where, Path(folder), options)


if __name__ == "__main__":
    main()
