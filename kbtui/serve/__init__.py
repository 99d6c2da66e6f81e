"""The screen in a browser: textual-serve's sessions behind a server that checks who asks."""
