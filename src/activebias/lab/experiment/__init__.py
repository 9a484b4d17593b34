"""The parts of an experiment: its recipe, the data of a trial, the results, and their folder."""
