"""Data of one's own (folders of images, tables, tagged text), and a small model trained on it."""
