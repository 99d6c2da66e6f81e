"""The index: catalog, keyword indexes, vectors and cached embeddings.

Only the engine writes, with `indexer.WorkspaceIndexWriter`; clients read, with `index_reader.IndexReader`.
"""
