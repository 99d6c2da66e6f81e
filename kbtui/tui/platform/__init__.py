"""What the screens of entries, sources and insights stand on."""
