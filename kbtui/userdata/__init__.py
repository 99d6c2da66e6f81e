"""Data that kbtui cannot rebuild from files: the query log, bookmarks, the saved state of the TUI, approvals and runs of sources."""
