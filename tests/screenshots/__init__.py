"""The pictures of the README, taken from the running program by `make screenshots`."""
