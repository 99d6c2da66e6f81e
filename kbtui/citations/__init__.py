"""Which turn used which subject, conversation or file."""
