"""The prompt workshop: show and change the knowledge that an assistant gets in its prompt."""
