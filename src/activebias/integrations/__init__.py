"""Adapters to training frameworks, one module per framework; nothing is imported before it is needed."""
