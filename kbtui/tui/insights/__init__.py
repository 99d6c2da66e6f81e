"""The insights screen: queries, gaps and citations over time."""
