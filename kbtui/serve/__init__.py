"""The TUI in a browser: textual-serve's sessions behind a server that checks each request."""
