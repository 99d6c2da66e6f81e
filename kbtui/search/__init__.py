"""Search: `search_pipeline.search_index` answers a `SearchRequest` with a `SearchAnswer`."""
