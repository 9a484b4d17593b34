"""Code that lab and own share: examples, the training loop, evaluation, checkpoints, progress."""
