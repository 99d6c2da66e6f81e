"""The sources screen: list, runs, approval and the form."""
