"""The TUI in a browser: sessions of textual-serve, behind a server that checks each request."""
