"""The library pane: topics, subjects and conversations, with a filter."""
