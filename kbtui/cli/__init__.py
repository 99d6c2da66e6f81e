"""The command-line interface, for people and scripts."""
