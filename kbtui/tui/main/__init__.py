"""The main screen and its controllers."""
