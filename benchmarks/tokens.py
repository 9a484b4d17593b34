"""Tokens as instances: what emphasis adds to a language model's step, with a history of 100 million tokens.

    python benchmarks/tokens.py [--device cuda] [--tokens 100000000] [--rounds 20]

The text is random: only times and bytes are measured. Both sides of the ratio take turns in one run.
"""

import argparse

import torch
from overhead import in_turn, ratio_of
from torch import nn
from torch.nn.functional import cross_entropy

import activebias as ab

# Width, layers, words, sequences of a batch, tokens of a sequence.
SIZES = {"cpu": (128, 2, 8_192, 4, 256), "cuda": (768, 12, 32_000, 8, 1024)}


class LanguageModel(nn.Module):
    """A small causal transformer."""

    def __init__(self, width, num_layers, num_words, length):
        super().__init__()
        self.embed, self.place = nn.Embedding(num_words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, num_words, bias=False)

    def forward(self, words):
        length = words.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=words.device)
        hidden = self.embed(words) + self.place.weight[:length]
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def main(device, num_tokens, num_rounds):
    torch.manual_seed(0)
    if device == "cpu":
        torch.set_num_threads(1)
    width, num_layers, num_words, num_sequences, length = SIZES[device]
    model = LanguageModel(width, num_layers, num_words, length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device != "cpu")
    tokens = ab.TokenIndex(torch.full((num_tokens // length,), length))
    number, options = tokens.num_instances, {"window": 2, "storage": "float16", "device": device}
    bias = ab.ActiveBias("wtc", num_instances=number, num_classes=num_words, **options)
    bias.set_epoch(0)
    words = torch.randint(num_words, (num_sequences, length + 1), device=device)

    def step(loss_of):
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            logits = model(words[:, :-1])
        loss = loss_of(logits.float(), words[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()

    def plain():
        step(lambda logits, targets: cross_entropy(logits.flatten(0, 1), targets.flatten()))

    def emphasised():
        index = tokens(torch.randint(tokens.num_sequences, (num_sequences,)), width=length)
        step(lambda logits, targets: bias.loss(logits, targets, index))

    for epoch in range(1, 3):  # on a GPU, graphs for shapes that came often are made between epochs
        for _ in range(17 if device != "cpu" else 1):
            emphasised()
        bias.set_epoch(epoch)
    seconds = in_turn({"wtc": emphasised, "plain": plain}, num_rounds)
    ratio, error = ratio_of(seconds["wtc"], seconds["plain"])
    milliseconds = {name: 1e3 * sorted(each)[len(each) // 2] for name, each in seconds.items()}
    print(f"{number:,} tokens, window 2, float16: {bias.num_bytes / number:.2f} bytes an instance.")
    print(
        f"A step of {num_sequences} × {length} tokens, {num_words:,} words, {num_layers} layers of {width}, "
        f"{device}: wtc {milliseconds['wtc']:.1f} ms, plain {milliseconds['plain']:.1f} ms, ratio "
        f"{ratio:.3f} ± {error:.3f} ({num_rounds} rounds)."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=SIZES, default="cpu")
    parser.add_argument("--tokens", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parsed = parser.parse_args()
    main(parsed.device, parsed.tokens, parsed.rounds)
