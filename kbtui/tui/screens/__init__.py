"""Whole screens: the main one, help, and the palette."""
