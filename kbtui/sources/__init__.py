"""Fetches web pages, files and MCP resources into topics, after the user has approved their source."""
