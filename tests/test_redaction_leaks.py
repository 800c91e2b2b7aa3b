"""Planted secrets never stand in a redacted text, wherever in a log they were, nor in the index's files on disk."""

from __future__ import annotations

import base64
import os
import random
import string
from pathlib import Path

import pytest

from diagnose.redaction import Redactor, load_redactions
from tests.remembered import Remembered

RULES = load_redactions()


def _made(letters: str, count: int, seed: int) -> str:
    chance = random.Random(seed)
    return "".join(chance.choice(letters) for _ in range(count))


ALL = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
SMALL = string.ascii_lowercase + string.digits


def secrets(seed: int) -> dict[str, tuple[str, str]]:
    """What is planted, and the part of it that must not be seen; no two runs of a seed alike."""

    def some(count: int, letters: str = ALL) -> str:
        nonlocal seed
        seed += 1
        return _made(letters, count, seed)

    word = some(8, string.ascii_lowercase)
    made = {
        "github": ("gh" + "p_{}", some(36)),
        "github oauth": ("gh" + "o_{}", some(36)),
        "github fine-grained": ("github_" + "pat_{}", some(50)),
        "gitlab": ("glpat-{}", some(20)),
        "hugging face": ("h" + "f_{}", some(34)),
        "openai": ("sk-{}", some(48)),
        "anthropic": ("sk-ant-api03-{}", some(60)),
        "aws id": ("AKIA{}", some(16, string.ascii_uppercase + string.digits)),
        "aws secret": ("aws_secret_access_key={}", some(40)),
        "google": ("AIza{}", some(35)),
        "google oauth": ("ya29.{}", some(60)),
        "slack": ("xoxb-{}", some(40)),
        "slack webhook": ("https://hooks.slack.com/services/{}", f"T{some(8)}/B{some(8)}/{some(24)}"),
        "stripe": ("sk_live_{}", some(24)),
        "nvidia": ("nvapi-{}", some(40)),
        "docker": ("dckr_pat_{}", some(27)),
        "npm": ("npm_{}", some(36)),
        "pypi": ("pypi-Ag{}", some(80)),
        "databricks": ("dapi{}", some(32, HEX)),
        "vault": ("hvs.{}", some(40)),
        "replicate": ("r8_{}", some(37)),
        "telegram": ("123456789:AA{}", some(33)),
        "web token": ("eyJ{}", f"{some(20)}.{some(40)}.{some(30)}"),
        "munge": ("MUNGE:{}:", some(60)),
        "wandb": ("wandb login {}", some(40, HEX)),
        "bearer": ("Authorization: Bearer {}", some(32, HEX)),
        "basic": ("Authorization: Basic {}", base64.b64encode(some(18).encode()).decode()),
        "cookie": ("Cookie: sid={}", some(24)),
        "password": ("password={}", some(10)),
        "passphrase": ("'ssh_passphrase': '{}'", some(10)),
        "flag": ("--hf-token {}", some(20)),
        "account key": ("AccountKey={};", some(60)),
        "url password": ("postgres://trainer:{}@db/x", some(12)),
        "url token": ("https://{}@git.example.org/x.git", some(24)),
        "signature": ("https://x.example/y?X-Amz-Signature={}&a=1", some(64, HEX)),
        "private key": ("-----BEGIN RSA PRIVATE KEY----- {} -----END RSA PRIVATE KEY-----", some(64)),
        "ssh key": ("ssh-rsa AAAAB3{}", some(60)),
        "unlisted key": ("key {}", "Zq8" + some(40) + "aB3xY9"),
        "home": ("/home/{}/run/train.yaml", word),
        "project": ("/lustre/projects/{}/tokenizer.json", some(9, string.ascii_lowercase)),
        "bucket": ("s3://{}/weights.bin", f"team-{some(8, string.ascii_lowercase)}"),
        "mail": ("{}@lab.example.org", some(9, string.ascii_lowercase)),
        "ipv4": ("{}", f"10.{seed % 200 + 17}.42.219"),
        "ipv6": ("{}", f"fd7a:115c:a1e0:{some(4, HEX)}:4843:cd96:6258:b240"),
        "mac": ("{}", f"3c:ec:ef:7a:{some(2, HEX)}:5d"),
        "host": ("host={}", f"dgx-{some(6, string.ascii_lowercase)}-07"),
        "private domain": ("{}.corp", f"grafana-{some(6, string.ascii_lowercase)}"),
        "user": ("user={}", some(9, string.ascii_lowercase)),
        "prompt": ("prompt: {}", f"Dear {some(9, string.ascii_lowercase)}, your contract is ready"),
        "chat": ("<|im_start|>user {}", f"my {some(9, string.ascii_lowercase)} hurts"),
        "token ids": ("input_ids: [{}]", ", ".join(some(4, "123456789") for _ in range(9))),
    }  # fmt: skip
    return {kind: (form.format(secret), secret) for kind, (form, secret) in made.items()}


POSITIONS = [
    "{}",
    "{} at the beginning",
    "at the end {}",
    "2026-03-01 10:00:05,123 [rank 3] ERROR: failed: {} (code 7)",
    "[rank0]: RuntimeError: '{}' is not valid",
    '  File "train.py", line 3: {}',
    '{{"level": "error", "message": "{}"}}',
    "\x1b[31m{}\x1b[0m",
    "x" * 70_000 + " {} " + "y" * 70_000,
    "\t{}\r",
    "| {} |",
    "({})",
    "<{}>",
    "+ export X; {}",
]


@pytest.mark.parametrize("kind", secrets(0))
def test_no_secret_is_left_in_any_position(kind: str) -> None:
    for number, position in enumerate(POSITIONS):
        planted, secret = secrets(1000 * number)[kind]
        text = f"step 1 loss 2.5\n{position.format(planted)}\nstep 2 loss 2.4"
        redactor = Redactor(RULES)
        redacted = redactor.redact(text)
        assert secret not in redacted, position
        assert redactor.restore(redacted) == text
        assert redacted.startswith("step 1 loss 2.5\n")
        assert redacted.endswith("step 2 loss 2.4") or kind == "chat"  # of which the next lines are part


TELLING = [
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has 79.15 GiB",
    "NVRM: Xid (PCI:0000:5d:00): 95, pid=4711, name=python, Uncontained ECC error",
    "[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800512 milliseconds",
    '  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/run.py", line 892, in run',
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "ImportError: /usr/lib/x86_64-linux-gnu/libcudart.so.12: undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs, version 12.4",
    "KeyError: 'prompt'",
    "OSError: [Errno 28] No space left on device",
    "huggingface_hub.errors.HfHubHTTPError: 401 for url: https://huggingface.co/meta-llama/Llama-3-8B",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x1024 and 768x4096)",
    "c10::Error: CUDA error: device-side assert triggered at ../aten/src/ATen/native/cuda/Indexing.cu:1236",
    "transformer_engine.pytorch: loaded version 1.11.0+c27ee60 sha256:0123456789abcdef0123456789abcdef",
]  # fmt: skip


def test_what_says_what_failed_stays() -> None:
    for line in TELLING:
        assert Redactor(RULES).redact(line) == line


def test_a_pattern_that_would_hang_hides_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from diagnose.dataclass import replace
    from diagnose.rules import redactions

    monkeypatch.setattr(redactions, "_PATIENCE", 0.02)
    bad = replace(RULES[0], pattern=r"(?:a|a|aa)+$", keywords=("aaa",))
    text = "before\n" + "a" * 5_000 + "b secret\nafter"
    redacted = Redactor([bad]).redact(text)
    assert "secret" not in redacted
    assert redacted.startswith("before\n<")
    assert redacted.endswith(">\nafter")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["chroma", "numpy"])
def test_no_byte_of_the_index_holds_a_secret(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("chromadb")
    from diagnose.store.embeddings import HashedWords
    from diagnose.store.index import IncidentIndex, Place

    memory = Remembered()
    planted = secrets(77)
    for number, (text, _) in enumerate(planted.values()):
        memory.put(f"i{number}", "DiskFull", f"OSError: [Errno 28] No space left on device\nerror: {text}")
    seen: list[str] = []

    class Watched(HashedWords):
        def embed(self, texts):
            seen.extend(texts)
            return super().embed(texts)

    index = IncidentIndex(
        Place(str(tmp_path / "index"), backend), memory, Watched(), lambda text: Redactor(RULES).redact(text)
    )
    index.sync()
    index.rebuild()
    assert len(index.similar("OSError: [Errno 28] No space left on device", 3)) == 3
    index.close()
    written = b""
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                written += file.read()
    assert len(written) > 10_000
    for kind, (_, secret) in planted.items():
        assert secret.encode() not in written, kind
        assert secret.encode("utf-16-le") not in written, kind
        assert not any(secret in text for text in seen), kind
