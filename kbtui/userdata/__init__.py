"""Data that kbtui cannot rebuild from files: query log, bookmarks, sessions, approvals and runs."""
