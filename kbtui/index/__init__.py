"""The index: catalog, keyword indexes, vectors and cached embeddings.

Only the engine writes, with `catalog_and_keyword_indexer.WorkspaceIndexWriter`; clients read, with `index_reader.IndexReader`.
"""
