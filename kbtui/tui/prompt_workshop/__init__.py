"""The prompt workshop, which shows and changes the knowledge that an assistant receives in its prompt."""
