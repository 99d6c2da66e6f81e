"""The tools for assistants, which kbtui offers over MCP and as local tools of JP."""
