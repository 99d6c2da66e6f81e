"""Publishes the entries and vectors of a workspace, and mirrors what others published."""
