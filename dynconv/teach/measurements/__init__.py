"""Measurements of whole translators for the lessons; each module is a command of its own."""
