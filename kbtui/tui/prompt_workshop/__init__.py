"""The prompt workshop: what an assistant is given, and how to change it."""
