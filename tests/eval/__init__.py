"""How good search is, measured on labelled questions (`make eval`)."""
