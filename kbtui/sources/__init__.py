"""Fetches web pages, files and MCP resources into topics, if the user has approved the source."""
