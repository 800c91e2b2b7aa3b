"""Where the index is and what it is made with, from `DIAGNOSE_*`; and the index, opened.

In: the environment, the incidents of a memory, redaction rules. Out: `IndexSettings`, and an `IncidentIndex` that
redacts whatever it is handed. Raises `UsageError` for values that cannot be meant.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.models import Incidents, RedactionRule
from diagnose.redaction import Redactor
from diagnose.sources.places import as_known, check_address
from diagnose.store.embeddings import Embedder, Endpoint, HashedWords, MiniLM, local_embedder
from diagnose.store.index import IncidentIndex, Place

_BACKENDS = ("chroma", "numpy")
_EMBEDDINGS = ("local", "minilm", "hashed")
_KEY_FILE = "DIAGNOSE_EMBEDDINGS_API_KEY_FILE"
_CHROMA_FILE = "DIAGNOSE_CHROMA_TOKEN_FILE"
_KEY_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Where an index is, and by what texts become vectors.

    `embeddings` is `local` (the small model where it is installed, else hashed words), `minilm` or `hashed`; where
    `embeddings_url` is given, an OpenAI-compatible endpoint is asked for `embeddings_model` instead.
    """

    place: Place
    embeddings: str = "local"
    embeddings_url: str | None = None
    embeddings_model: str = ""
    embeddings_key_file: str | None = None

    @property
    def servers(self) -> str:
        """A key of what is asked over the network, without addresses, which may hold a password; none if nothing is."""
        asked = [each for each in (self.embeddings_url, self.place.server) if each]
        return f"index {sha256(' '.join(asked).encode('utf-8', 'replace')).hexdigest()}" if asked else ""


def index_settings(environment: Mapping[str, str], database: str) -> IndexSettings:
    """The index beside a database, as `DIAGNOSE_INDEX`, `DIAGNOSE_CHROMA_URL` and `DIAGNOSE_EMBEDDINGS*` have it."""

    def given(name: str) -> str:
        return environment.get(name, "").strip()

    backend = given("DIAGNOSE_VECTORS") or "chroma"
    if backend not in _BACKENDS:
        raise UsageError(f"DIAGNOSE_VECTORS must be one of {', '.join(_BACKENDS)}")
    embeddings = given("DIAGNOSE_EMBEDDINGS") or "local"
    if embeddings not in _EMBEDDINGS:
        raise UsageError(
            f"DIAGNOSE_EMBEDDINGS must be one of {', '.join(_EMBEDDINGS)}; for an endpoint set DIAGNOSE_EMBEDDINGS_URL"
        )
    url = given("DIAGNOSE_EMBEDDINGS_URL") or None
    model = given("DIAGNOSE_EMBEDDINGS_MODEL")
    if url:
        check_address("DIAGNOSE_EMBEDDINGS_URL", url, "http://localhost:8000/v1", _KEY_FILE)
    if url and not model:
        raise UsageError("DIAGNOSE_EMBEDDINGS_URL is set but no model: set DIAGNOSE_EMBEDDINGS_MODEL")
    server = given("DIAGNOSE_CHROMA_URL") or None
    if server:
        check_address("DIAGNOSE_CHROMA_URL", server, "http://chroma:8000", _CHROMA_FILE)
    token = _secret(environment, _CHROMA_FILE)
    return IndexSettings(
        Place(
            given("DIAGNOSE_INDEX") or _beside(database, environment),
            backend,
            server,
            token,
        ),
        embeddings,
        url,
        model,
        given(_KEY_FILE) or None,
    )


def open_index(settings: IndexSettings, incidents: Incidents, redactions: Iterable[RedactionRule]) -> IncidentIndex:
    """The index, not yet followed up. Raises `UsageError` where it cannot be used; the caller closes it."""
    rules = tuple(redactions)
    try:
        return IncidentIndex(
            settings.place, incidents, embedder_of(settings), lambda text: Redactor(rules).redact(text)
        )
    except OSError as error:
        raise UsageError(
            f"the index {as_known(settings.place.folder)} cannot be opened: {error.strerror}; set DIAGNOSE_INDEX to "
            "a directory of your own"
        ) from None


def embedder_of(settings: IndexSettings) -> Embedder:
    """What makes vectors of texts."""
    if settings.embeddings_url:
        key = _secret({_KEY_FILE: settings.embeddings_key_file or ""}, _KEY_FILE)
        return Endpoint(settings.embeddings_url, settings.embeddings_model, key)
    if settings.embeddings == "hashed":
        return HashedWords()
    return MiniLM() if settings.embeddings == "minilm" else local_embedder()


def _beside(database: str, environment: Mapping[str, str]) -> str:
    """A directory beside a database that is a file, else in the user's folder of data."""
    if "://" not in database:
        return os.path.abspath(f"{os.path.splitext(database)[0]}.index")
    base = environment.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(environment.get("HOME", "") or os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "diagnose", "memory.index")


def _secret(environment: Mapping[str, str], name: str) -> str | None:
    """The content of a file that a variable names; messages repeat neither, since some put the key itself there."""
    path = environment.get(name, "").strip()
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            value = file.read(_KEY_BYTES).decode("ascii", "replace").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it has no usable name"
        raise UsageError(f"the file of {name} cannot be read: {why}; give the path of a file with the key") from None
    if not value.isprintable() or not value:
        raise UsageError(f"the file of {name} holds no key: one line of plain characters is expected")
    return value
