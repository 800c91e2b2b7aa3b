"""Planted secrets of many kinds, in every position of a log, never reach the wire: looked for in the received bytes."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import quote as percent

import pytest

from diagnose.models import Opinion, RuleSet, SimilarIncident
from tests.asking import CAUSE, LOG, answer, quote, right, run, settings, shown
from tests.modelserver import Asked, Reply, completion, model_server

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

# What stands in the log, and the part of it that must not leave.
PLANTED: dict[str, tuple[str, str]] = {
    "github token": ("token ghp_R8xkQ2mZt7Lw4Vb9Nc6Yd1Hs3Jf5Gp0aUeXi", "R8xkQ2mZt7Lw4Vb9Nc6Yd1Hs3Jf5Gp0aUeXi"),
    "github fine-grained": ("github_pat_11ABCDEFG0k3X9v7Qw2ZpL8_mN5rT1yU4iO6aS", "k3X9v7Qw2ZpL8_mN5rT1yU4iO6aS"),
    "gitlab token": ("glpat-x7Vq2Lm9Kp4Rt8Zw3Nc6", "x7Vq2Lm9Kp4Rt8Zw3Nc6"),
    "hugging face": ("HF_TOKEN=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", "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi"),
    "openai": ("sk-proj-a8B3c9D4e7F2g6H1i5J0k8L3m9N4", "a8B3c9D4e7F2g6H1i5J0k8L3m9N4"),
    "aws id": ("AWS_ACCESS_KEY_ID=AKIAQ7ZX3WV5RT9PL2KM", "AKIAQ7ZX3WV5RT9PL2KM"),
    "aws secret": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ9vT3kLp8", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ9vT3kLp8"),
    "google": ("key=AIzaSyD4x9Qk2Lm7Vb3Nc8Zt5Rw1Hp6Jf0GaYeU", "AIzaSyD4x9Qk2Lm7Vb3Nc8Zt5Rw1Hp6Jf0GaYeU"),
    "slack": ("xoxb-293847561029-837465920183-Kd8Lm2Qp7Rt4Vx9Zb3Nc", "Kd8Lm2Qp7Rt4Vx9Zb3Nc"),
    "nvidia": ("NGC nvapi-Zx8Qk2Lm7Vb3Nc9Wt5Rp1Hd6Jf0GaYeUiOsT", "Zx8Qk2Lm7Vb3Nc9Wt5Rp1Hd6Jf0GaYeUiOsT"),
    "web token": (
        "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJrYXJlbiJ9.Qk2Lm7Vb3Nc9Wt5Rp1Hd6Jf0GaYe",
        "eyJzdWIiOiJrYXJlbiJ9",
    ),
    "bearer": ("authorization: bearer 9f8e7d6c5b4a39281706f5e4d3c2b1a0", "9f8e7d6c5b4a39281706f5e4d3c2b1a0"),
    "basic": ("Authorization: Basic a2FyZW46Y29ycmVjdGhvcnNl", "a2FyZW46Y29ycmVjdGhvcnNl"),
    "password": ("db password=Tr0ub4dor&3xkcd", "Tr0ub4dor"),
    "password in url": ("postgres://trainer:hunter2hunter2@db.corp.example/train", "hunter2hunter2"),
    "token in url": ("cloning https://oauth2:9a8b7c6d5e4f3a2b1c0d@git.corp.example/x.git", "9a8b7c6d5e4f3a2b1c0d"),
    "private key": ("-----BEGIN RSA PRIVATE KEY-----MIIEowIBAAKCAQEAzQ8Kp3Lm7Vb2Nc9-----END RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEAzQ8Kp3Lm7Vb2Nc9"),
    "secret flag": ("python train.py --wandb-api-key 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"),
    "secret variable": ("export SLURM_JWT_SECRET=Zq8Xw7Ev6Ru5Ty4", "Zq8Xw7Ev6Ru5Ty4"),
    "cookie": ("Cookie: session=Zk8Lm2Qp7Rt4Vx9Zb3Nc6Wd1", "Zk8Lm2Qp7Rt4Vx9Zb3Nc6Wd1"),
    "home": ("reading /home/karenina/experiments/run7/config.yaml", "karenina"),
    "user": ("user=oblonsky uid=4711 logged in", "oblonsky"),
    "project path": ("/lustre/projects/blackwing/secret-llm/ckpt not ready", "blackwing"),
    "e-mail": ("mail to konstantin.levin@pokrovskoe.example sent", "konstantin.levin"),
    "ipv4": ("peer 10.137.42.219 is gone", "10.137.42.219"),
    "ipv6": ("peer fd7a:115c:a1e0:ab12:4843:cd96:6258:b240 is gone", "fd7a:115c:a1e0"),
    "mac": ("nic 3c:ec:ef:7a:91:5d is down", "3c:ec:ef:7a:91:5d"),
    "host": ("host=dgx-moskva-0417.cluster.internal is away", "dgx-moskva-0417"),
    "bucket": ("s3://vronsky-private-weights/v7/model.bin", "vronsky-private-weights"),
    "ssh key": ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKq8Lm2Qp7Rt4Vx9Zb3Nc6Wd1Hf5Gj0aUeXiOsTyB karenina@dgx", "Kq8Lm2Qp7Rt4Vx9Zb3Nc6Wd1Hf5Gj0aUeXiOsTyB"),
    "prompt": ("prompt: 'Dear doctor, my patient Anna Arkadyevna has'", "Arkadyevna"),
}  # fmt: skip


def encodings(secret: str) -> list[bytes]:
    """A secret as it may stand on the wire."""
    return [
        secret.encode(),
        secret.encode().hex().encode(),
        percent(secret, safe="").encode(),
        secret[::-1].encode(),
        base64.b64encode(secret.encode()).rstrip(b"="),
        base64.b64encode(b"x" + secret.encode())[2:].rstrip(b"=")[:-2],
        base64.b64encode(b"xx" + secret.encode())[3:].rstrip(b"=")[:-2],
    ]


def log_with(planted: str) -> str:
    """The failure with one text in every position: before, after, in and beside the cause, as name, in a traceback."""
    lines = LOG.splitlines()
    lines[0] += f" {planted}"
    lines[1] += f"; {planted}"
    lines[2] = f"2027-03-01 10:00:05 [rank 3] error: {planted}"
    return "\n".join(
        [
            planted,
            f"launching with {planted}",
            *lines,
            f"ERROR {planted}",
            f"{planted}: failed",
            f'  File "{planted}", line 3',
            f'{{"error": "{planted}", "level": "error"}}',
            f"\x1b[31m{planted}\x1b[0m failed",
            f"2027-03-01 10:00:06 [rank 3] fatal error {planted}",
        ]
    )


@pytest.mark.parametrize("kind", PLANTED)
def test_nothing_planted_reaches_the_wire(kind: str, tmp_path: Path, rule_set: RuleSet) -> None:
    planted, secret = PLANTED[kind]
    assert secret in planted

    def script(asked: Asked) -> Reply:
        turns = len(asked.body["messages"])
        wish = {2: [{"tool": "grep", "words": secret, "line": 0}], 4: [{"tool": "window", "words": "", "line": 2}]}
        return completion(
            {**right(asked), "evidence": [{"line": 1, "quote": "no such quote"}], "read_more": wish.get(turns, [])}
        )

    with model_server(script) as server:
        report = run(tmp_path, rule_set, settings(server.url, excerpt_tokens=400), log_with(planted))
        assert len(server.asked) >= 3  # the question, what was read on, the repair
        assert CAUSE.split(";")[0][:30].encode() in server.wire
        for written in encodings(secret):
            if len(written) > 8:
                # A model that already has a secret may ask for it; what comes back must not hold it.
                said = b"".join(each.raw for each in server.asked).replace(b'\\"words\\": \\"' + secret.encode(), b"")
                assert written not in said, written
    assert report.decided_by.agent_state in ("rejected", "unavailable")


@pytest.mark.parametrize("kind", ["host", "home", "e-mail", "ipv4"])
def test_people_read_the_names_as_they_are(kind: str, tmp_path: Path, rule_set: RuleSet) -> None:
    planted, secret = PLANTED[kind]
    log = LOG.replace("no sparkle left", f"no sparkle left, {planted}")

    def script(asked: Asked) -> Reply:
        line = next(text for text in shown(asked).values() if "nvlink lane" in text)
        told = line.partition("left, ")[2]
        return completion(
            {**right(asked), "evidence": quote(asked, "nvlink lane"), "root_cause": f"The link failed, {told}."}
        )

    with model_server(script) as server:
        report = run(tmp_path, rule_set, settings(server.url), log)
        assert secret.encode() not in server.wire
    assert report.root_cause is not None
    assert secret in report.root_cause.summary
    assert secret in report.root_cause.evidence[0].text


def test_names_of_sources_and_findings_are_redacted_too(tmp_path: Path, rule_set: RuleSet) -> None:
    logs = {"home/karenina/dgx-moskva-0417.log": LOG, "dgx-moskva-0417_rank5.log": LOG.replace("rank 3", "rank 5")}
    with model_server(lambda asked: completion(right(asked))) as server:
        report = run(tmp_path, rule_set, settings(server.url), logs)
        assert report.error_type == "NVLinkError"
        assert b"karenina" not in server.wire
        assert b"moskva" not in server.wire
        assert str(tmp_path).encode() not in server.wire


class Remembered:
    """Past incidents that were redacted in another diagnosis."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def opinion(self, text: str) -> Opinion:
        self.texts.append(text)
        return Opinion(similar=(SimilarIncident("i", "NVLinkError", 0.5, summary="<host-1> and <user-1> once failed"),))


@pytest.mark.parametrize("kind", ["host", "home", "password", "github token"])
def test_what_is_searched_for_in_past_incidents_is_redacted(kind: str, tmp_path: Path, rule_set: RuleSet) -> None:
    planted, secret = PLANTED[kind]
    past = Remembered()
    with model_server(lambda _: completion(answer("cannot_tell"))) as server:
        run(tmp_path, rule_set, settings(server.url), log_with(planted), neighbours=past)
        assert "(host) and (user) once failed" in server.asked[0].text
    assert secret not in past.texts[0]


def test_a_model_cannot_make_up_what_is_restored(tmp_path: Path, rule_set: RuleSet) -> None:
    """A placeholder that was never given stands for nothing, and one that a log holds stands for itself."""
    log = LOG.replace("no sparkle left", "no sparkle left on <host-1>")

    def script(asked: Asked) -> Reply:
        return completion(
            {**right(asked), "evidence": quote(asked, "nvlink lane"), "root_cause": "<host-77> and <token-1> failed."}
        )

    with model_server(script) as server:
        report = run(tmp_path, rule_set, settings(server.url), log)
    assert report.root_cause is not None
    assert report.root_cause.summary == "<host-77> and <token-1> failed."
    assert "<host-1>" in report.root_cause.evidence[0].text
