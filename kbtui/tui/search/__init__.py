"""The search pane: query input, completion and results."""
