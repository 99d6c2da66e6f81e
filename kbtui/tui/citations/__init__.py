"""The citations pane: what a turn used, and where a subject was used."""
