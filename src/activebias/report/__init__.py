"""Own data in, run folder out, and what reads it: suspected labels, data map, HTML report."""
