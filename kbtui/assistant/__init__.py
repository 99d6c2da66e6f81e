"""The tools for assistants, offered over MCP and as JP's local tools."""
