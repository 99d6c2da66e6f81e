"""`make bench`: what kbtui costs, always as a ratio to a baseline measured in the same run."""
