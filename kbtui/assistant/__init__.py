"""The tools that kbtui offers to assistants, over MCP and as local tools of JP."""
