"""LlamaIndex's retriever and query engine over the index find what the index finds, without a model or a network."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("llama_index.core")

from diagnose.store.embeddings import HashedWords
from diagnose.store.index import IncidentIndex, Place
from tests.remembered import Remembered

pytestmark = pytest.mark.filterwarnings("ignore")


def test_engines_answer_with_their_sources(tmp_path: Path) -> None:
    from diagnose.store.engine import incident_engine, line_engine, line_index

    memory = Remembered()
    memory.put("oom", "OutOfMemoryError", "torch.OutOfMemoryError: CUDA out of memory", recovered=True)
    memory.put("disk", "DiskFull", "OSError: [Errno 28] No space left on device")
    index = IncidentIndex(Place(str(tmp_path), "numpy"), memory, HashedWords(), lambda text: text)
    index.sync()
    asked = "OSError: [Errno 28] No space left on device: x.pt"
    sources = incident_engine(index).query(asked).source_nodes
    assert [(each.node.node_id, each.score) for each in sources] == [
        (each.id, each.similarity) for each in index.similar(asked)
    ]
    assert sources[0].node.metadata["error_type"] == "DiskFull"
    index.close()

    lines = ["step 100 loss 2.5", "", "error: no space left on device", "saving checkpoint", "SIGTERM received"]
    found = line_engine(lines, HashedWords(), 2).query("no space left on device").source_nodes
    assert found[0].node.node_id == "2"
    assert line_index(lines, HashedWords()).as_retriever(similarity_top_k=1).retrieve("sigterm")[0].node.node_id == "4"
