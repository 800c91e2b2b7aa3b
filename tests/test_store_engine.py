"""LlamaIndex's retriever and query engine over the index find what the index finds, without a model or a network."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("llama_index.core")

from diagnose.errors import UsageError
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


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_chroma_is_searched_through_llamaindex(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.vector_stores.chroma")
    from diagnose.store.engine import vector_engine

    memory = Remembered()
    memory.put("oom", "OutOfMemoryError", "torch.OutOfMemoryError: CUDA out of memory", recovered=True)
    memory.put("disk", "DiskFull", "OSError: [Errno 28] No space left on device")
    memory.put("quota", "DiskFull", "OSError: [Errno 122] Disk quota exceeded on volume seven")
    index = IncidentIndex(Place(str(tmp_path), "chroma"), memory, HashedWords(), lambda text: text)
    index.sync()
    asked = "OSError: [Errno 28] No space left on device: x.pt"
    sources = vector_engine(index).query(asked).source_nodes
    assert {each.node.node_id for each in sources} == {"oom", "disk", "quota"}
    first = sources[0]
    assert (first.node.node_id, first.node.metadata["error_type"]) == ("disk", "DiskFull")
    assert first.score == max(each.score or 0.0 for each in sources)
    only = vector_engine(index, error_types=["OutOfMemoryError"]).query(asked).source_nodes
    assert [each.node.node_id for each in only] == ["oom"]
    both = vector_engine(index, 2, error_types=["OutOfMemoryError", "DiskFull"]).query(asked).source_nodes
    assert len(both) == 2
    memory.drop("disk")
    assert "disk" not in {each.node.node_id for each in vector_engine(index).query(asked).source_nodes}
    index.close()


def test_vectors_elsewhere_are_told(tmp_path: Path) -> None:
    from diagnose.store.engine import vector_engine

    index = IncidentIndex(Place(str(tmp_path), "numpy"), Remembered(), HashedWords(), lambda text: text)
    with pytest.raises(UsageError, match="in no Chroma of this process"):
        vector_engine(index)
    index.close()
