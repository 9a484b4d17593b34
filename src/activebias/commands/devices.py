"""The options `--device` and `--devices`."""

import torch
import typer


def find_device(device: str, option: str = "--device") -> str:
    """Return the device for `--device`; "auto" is a GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        kinds = "cpu, cuda or cuda:N" if option == "--devices" else "auto, cpu, cuda or cuda:N"
        raise typer.BadParameter(f"Expected `{option}` to be {kinds}, but got {device!r}.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`{option}` is cuda, but torch sees no CUDA device here: use {option} cpu.")
    return device


def find_devices(text: str) -> tuple[str, ...]:
    """Return the devices for `--devices`; "cuda" means all GPUs of this machine.

    >>> find_devices("cpu, cpu")
    ('cpu', 'cpu')
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or "auto" in words:
        raise typer.BadParameter(
            f"Expected `--devices` to name devices, such as cuda:0,cuda:1, but got {text!r}."
        )
    devices = [find_device(word, "--devices") for word in words]
    if devices == ["cuda"]:
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    gpus = [device for device in devices if device != "cpu"]
    if len({torch.device(device).index or 0 for device in gpus}) < len(gpus):
        raise typer.BadParameter(
            f"Expected `--devices` to name a GPU once, but got {text!r}: one process fills a GPU."
        )
    for device in gpus:
        if (torch.device(device).index or 0) >= torch.cuda.device_count():
            raise typer.BadParameter(
                f"Expected `--devices` to be among the {torch.cuda.device_count()} GPUs of this machine, "
                f"cuda:0 and up, but got {device!r}."
            )
    return tuple(devices)
