"""What the reader shows: blocks of text, laid out to lines only where somebody looks."""
