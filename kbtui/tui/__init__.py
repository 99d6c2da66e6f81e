"""The TUI: browse, search and read a workspace in the terminal."""
