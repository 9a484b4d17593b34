"""The lab: the experiments of the paper as recipes, and the tools to run and compare them."""
