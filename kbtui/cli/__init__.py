"""The commands for people and scripts."""
