"""The pictures of the README, made from the running program: `make screenshots`."""
