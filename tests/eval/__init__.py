"""How good search is: measured on labelled questions, kept, and compared (`make eval`)."""
