"""Images of K models' batches: cropped and flipped, standardised."""

import torch
from torch import Tensor

from activebias.lab.models import crop_and_flip

_MARGIN = 2
# Channels in storage: three, and one of zeros, so that a pixel is a whole number of words.
STORED_CHANNELS = 4


def cropped(images: Tensor, index: Tensor, shifts: Tensor) -> Tensor:
    """Return images[index] (K, B, …), each cropped and flipped by shifts (K, 3, B) as in `crop_and_flip`."""
    if not images.is_cuda:
        cut = crop_and_flip(images[index.flatten()], *shifts.transpose(0, 1).flatten(1))
        return cut.view(*index.shape, *images.shape[1:])
    from activebias.lab.side_by_side import image_kernels as kernels

    _, channels, height, width = images.shape
    outputs = images.new_empty(*index.shape, channels, height, width)
    kernels.crop_and_flip[(index.numel(),)](
        images, index, shifts, outputs, index.shape[1],
        C=channels, H=height, W=width, MARGIN=_MARGIN, BLOCK=1 << (images[0].numel() - 1).bit_length(),
    )  # fmt: skip
    return outputs


def standardised(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Return images (…, 3, H, W) with mean 0 and standard deviation 1, channels last (GPU only)."""
    from activebias.lab.side_by_side import image_kernels as kernels

    images = images.contiguous()
    *leading, channels, height, width = images.shape
    outputs = torch.empty(*leading, height, width, STORED_CHANNELS, dtype=dtype, device=images.device)
    kernels.standardise[(images.numel() // (channels * height * width),)](
        images, outputs, C=channels, PIXELS=height * width, STORED=STORED_CHANNELS
    )
    return outputs
