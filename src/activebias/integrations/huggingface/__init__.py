"""Active Bias under Hugging Face's Trainer: classification, tagging and language models."""

try:
    import accelerate  # type: ignore[import-untyped] # noqa: F401
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "activebias.integrations.huggingface needs transformers and accelerate: "
        "pip install 'activebias[huggingface]'"
    ) from error

from activebias.integrations.huggingface.trainer import ActiveBiasMixin as ActiveBiasMixin
from activebias.integrations.huggingface.trainer import ActiveBiasTrainer as ActiveBiasTrainer
