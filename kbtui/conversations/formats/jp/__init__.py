"""JP's conversation directories: where they are, and how their files are read."""
