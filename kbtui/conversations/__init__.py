"""Conversations: their model, the formats they are read from, and searching them by line."""
