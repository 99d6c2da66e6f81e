"""The prompt workshop: what an assistant is given, previewed while a person shapes it."""
