"""Conversations: their data classes, their formats, and the line-by-line search in them."""
