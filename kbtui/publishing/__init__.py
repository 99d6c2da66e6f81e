"""Publishes the entries and vectors of a workspace, and mirrors libraries that others published."""
