"""The option `--device`."""

import torch
import typer


def find_device(device: str) -> str:
    """Return the device for `--device`; "auto" is a GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise typer.BadParameter(f"Expected `--device` to be auto, cpu, cuda or cuda:N, but got {device!r}.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("`--device` is cuda, but torch sees no CUDA device here: use --device cpu.")
    return device
