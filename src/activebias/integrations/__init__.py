"""Adapters to training frameworks, one module each; nothing is imported before it is asked for."""
