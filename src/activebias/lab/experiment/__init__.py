"""What an experiment is: its recipe, the data of a trial, the results, and the place where they lie."""
