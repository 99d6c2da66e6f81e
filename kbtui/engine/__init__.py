"""The engine (the one process that writes the index) and its client."""
