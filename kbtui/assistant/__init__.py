"""The faces for assistants: tool definitions, JP local tool, MCP server."""
