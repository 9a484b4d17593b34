"""torchdata's StatefulDataLoader: stop in the middle of an epoch, build everything anew, go on.

Batches that worker processes had prefetched, but that were not trained on, come again.
"""

import tempfile
from pathlib import Path

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import activebias as ab
import digits


class Run:
    """Everything that a checkpoint holds."""

    def __init__(self) -> None:
        dataset = digits.train_set()
        self.model = digits.make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=digits.LEARNING_RATE, momentum=0.9)
        self.bias = ab.ActiveBias(
            "wtc", num_instances=len(dataset), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
        )
        self.loader = StatefulDataLoader(
            ab.with_index(dataset),
            batch_size=digits.BATCH_SIZE,
            sampler=self.bias.sampler(batch_size=digits.BATCH_SIZE),
            num_workers=2,
        )

    def train(self, checkpoint: Path, stop_after: int | None = None) -> None:
        """Train from the bias's position; after `stop_after` steps write a checkpoint and stop."""
        num_steps = 0
        for epoch in range(self.bias.epoch or 0, digits.EPOCHS):
            self.bias.set_epoch(epoch)
            for index, (x, y) in self.loader:
                loss = self.bias.loss(self.model(x), y, index)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                num_steps += 1
                if num_steps == stop_after:
                    torch.save({name: part.state_dict() for name, part in vars(self).items()}, checkpoint)
                    return

    def resume(self, checkpoint: Path) -> None:
        state = torch.load(checkpoint, weights_only=True)
        for name, part in vars(self).items():
            part.load_state_dict(state[name])


def main() -> float:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint.pt"
        Run().train(checkpoint, stop_after=75)  # of 22 steps an epoch: the fourth epoch is under way
        run = Run()
        run.resume(checkpoint)
        print(f"resumed in epoch {run.bias.epoch}")
        run.train(checkpoint)
    return digits.accuracy(run.model)


if __name__ == "__main__":
    digits.report(main())
