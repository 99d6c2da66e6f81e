"""The commands of the command line, for people and scripts."""
