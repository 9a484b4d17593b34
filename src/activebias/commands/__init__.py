"""The commands of `activebias`, a module each; what a command needs is imported inside it."""
