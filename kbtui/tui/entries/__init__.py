"""The entries screen: a table of subjects and conversations."""
