"""The sources screen: the list of sources, their runs, their approval and their form."""
