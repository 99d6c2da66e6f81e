"""The prompt workshop: show the knowledge that an assistant gets in its prompt, and change it."""
