"""One module or package for each agent whose conversations kbtui reads."""
