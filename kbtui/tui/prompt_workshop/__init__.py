"""The prompt workshop, which shows and changes the knowledge that an assistant gets in its prompt."""
