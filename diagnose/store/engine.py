"""Past incidents, and the lines of one failure, as LlamaIndex knows them: embeddings, retrievers, query engines.

In: an `IncidentIndex` or lines. Out: LlamaIndex's own objects, for whoever builds on it. What a retriever finds is what
the index finds, words and vectors fused, or, of `vector_engine`, what Chroma finds by vectors alone; no model answers,
so an engine's response is its sources. Importing this takes seconds: nothing on the way of a report does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import FilterCondition, MetadataFilter, MetadataFilters
from llama_index.vector_stores.chroma import ChromaVectorStore

from diagnose.errors import UsageError
from diagnose.models import SimilarIncident
from diagnose.store.embeddings import Embedder
from diagnose.store.index import IncidentIndex


class Embeddings(BaseEmbedding):
    """An `Embedder` as LlamaIndex calls it."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(model_name=embedder.name)
        self._embedder = embedder

    @classmethod
    def class_name(cls) -> str:
        """The name by which LlamaIndex stores it."""
        return "diagnose"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [[float(value) for value in row] for row in self._embedder.embed(texts)]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


class IncidentRetriever(BaseRetriever):
    """Past incidents by words and vectors together."""

    def __init__(self, index: IncidentIndex, count: int = 5) -> None:
        super().__init__()
        self._index = index
        self._count = count

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._index.similar(query_bundle.query_str, self._count)
        return [NodeWithScore(node=_node(each), score=each.similarity) for each in found]


def incident_engine(index: IncidentIndex, count: int = 5) -> RetrieverQueryEngine:
    """A query engine over past incidents; its response has the incidents as source nodes and no text."""
    return RetrieverQueryEngine(retriever=IncidentRetriever(index, count), response_synthesizer=_no_text())


class _Asked(Embeddings):
    """Embeds a question as the index embeds incidents: its most telling lines, redacted."""

    def __init__(self, index: IncidentIndex) -> None:
        super().__init__(index.embedder)
        self._index = index

    def _get_query_embedding(self, query: str) -> list[float]:
        return [float(value) for value in self._index.vector(query)]


class _Told(BaseNodePostprocessor):
    """What the memory knows of the incidents found, whose texts Chroma does not have; without those that are gone."""

    def __init__(self, index: IncidentIndex) -> None:
        super().__init__()
        self._index = index

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        told = self._index.told([each.node.node_id for each in nodes])
        return [
            NodeWithScore(node=_node(told[each.node.node_id]), score=each.score)
            for each in nodes
            if each.node.node_id in told
        ]


def vector_index(index: IncidentIndex) -> VectorStoreIndex:
    """The vectors of past incidents where Chroma keeps them: nodes with ids and error types, by which to filter.

    Raises `UsageError` where the vectors are in no Chroma that this process may use.
    """
    collection = index.collection
    if collection is None:
        raise UsageError(
            "the vectors are in no Chroma of this process: unset DIAGNOSE_VECTORS, set DIAGNOSE_CHROMA_URL, or wait "
            f"for {index.holder()} to end"
        )
    return VectorStoreIndex.from_vector_store(ChromaVectorStore(chroma_collection=collection), _Asked(index))


def vector_engine(index: IncidentIndex, count: int = 5, error_types: Sequence[str] = ()) -> RetrieverQueryEngine:
    """A query engine over the vectors alone, of these error types if any; Chroma searches."""
    filters = None
    if error_types:
        wanted: list[MetadataFilter | MetadataFilters] = [
            MetadataFilter(key="error_type", value=name) for name in error_types
        ]
        filters = MetadataFilters(filters=wanted, condition=FilterCondition.OR)
    retriever = vector_index(index).as_retriever(similarity_top_k=count, filters=filters)
    return RetrieverQueryEngine(
        retriever=retriever, response_synthesizer=_no_text(), node_postprocessors=[_Told(index)]
    )


def line_index(lines: Sequence[str], embedder: Embedder) -> VectorStoreIndex:
    """The lines of one failure, redacted, in memory: `as_retriever` finds those that bear on a cause."""
    nodes = [TextNode(text=line, id_=str(number)) for number, line in enumerate(lines) if line.strip()]
    return VectorStoreIndex(nodes, embed_model=Embeddings(embedder))


def line_engine(lines: Sequence[str], embedder: Embedder, count: int = 5) -> RetrieverQueryEngine:
    """A query engine over the lines of one failure."""
    retriever = line_index(lines, embedder).as_retriever(similarity_top_k=count)
    return RetrieverQueryEngine(retriever=retriever, response_synthesizer=_no_text())


def _no_text() -> NoText:
    return NoText(llm=MockLLM())  # never asked; without one LlamaIndex looks for a key of OpenAI


def _node(each: SimilarIncident) -> TextNode:
    metadata = {
        "error_type": each.error_type,
        "attribution": each.attribution,
        "recovered": each.recovered,
        "job": each.job,
    }
    return TextNode(id_=each.id, text=each.summary, metadata=metadata)
