"""The index: catalog, keyword indexes, vectors and cached embeddings.

The engine writes, with `workspace_index_writer.WorkspaceIndexWriter`; clients read, with `index_reader.IndexReader`.
"""
