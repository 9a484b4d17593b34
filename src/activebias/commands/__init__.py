"""The commands of `activebias`, one module each; they import inside the commands for a fast `--help`."""
