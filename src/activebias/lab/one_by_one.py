"""Trials trained one model at a time: the burn-in once, then every method from the end of the burn-in."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, final

from activebias import METHODS, ActiveBias, Method
from activebias.lab.experiment.place import EpochDone, Listener, Place
from activebias.lab.experiment.prepared import Prepared, check_peer, trial_result
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.rules import RunKey, name_by_rule, run_name
from activebias.lab.experiment.sides import PLAIN, Setting, Side
from activebias.lab.models import augment
from activebias.lab.peers import Alone
from activebias.training.checkpoints import Checkpoint
from activebias.training.entities import EntityScorer
from activebias.training.loop import Run, Task, train_until
from activebias.training.randomness import derived_generator, derived_seed


def build_run(
    recipe: Recipe,
    data: Prepared,
    methods: Sequence[Method],
    *,
    seed: int,
    setting: Setting = PLAIN,
    observed: bool = False,
) -> Run:
    """Build model, optimiser and biases of a trial from its seed, for one method or a shared burn-in."""
    optimiser = replace(recipe.optimiser, learning_rate=setting.rate * recipe.optimiser.learning_rate)
    task = Task(
        train=data.train,
        test=data.test,
        batch_size=recipe.batch_size,
        seed=seed,
        drop_last=True,  # floor(|D| / batch) iterations
        tokens=data.tokens,
        scorer=EntityScorer(data.dataset.class_names) if recipe.metric == "entity F1" else None,
        learning_rate_at=optimiser.learning_rate_at,
        augment=augment if recipe.augmentation == "crop and flip" else None,
        teacher=data.teacher,
        validation=data.validation,
    )
    model = recipe.model(data.dataset, derived_generator(seed, "weights")).to(data.device)
    # By name and rule: a stopped burn-in may belong to other methods with the same names.
    biases = {
        run_name(method): ActiveBias(
            method,
            num_instances=data.num_instances,
            num_classes=data.dataset.num_classes,
            burn_in=recipe.burn_in,
            window=recipe.window,
            device=data.device,
            seed=derived_seed(seed, "order"),
        )
        for method in methods
    }
    return Run(
        task,
        model,
        optimiser.build(model.parameters()),
        biases,
        observed=observed,
        objective=_objective(recipe, data, setting, seed),
    )


def _objective(recipe: Recipe, data: Prepared, setting: Setting, seed: int) -> Alone | None:
    if setting.peer is None:
        return None
    check_peer(setting.peer, data)
    return Alone(
        setting.peer,
        setting.value,
        num_instances=data.num_instances,
        num_classes=data.dataset.num_classes,
        batch_size=recipe.batch_size,
        epochs=recipe.epochs,
        seed=seed,
        device=data.device,
    )


@final
@dataclass(frozen=True)
class OneByOne:
    """The methods of one trial, trained one after the other."""

    recipe: Recipe
    data: Prepared
    seed: int
    place: Place
    listener: Listener
    keep_models: bool

    def train(self, sides: Sequence[Side]) -> None:
        """Train the sides and store their results: first those with a scan, then those that draw."""
        settings = dict.fromkeys(side.setting for side in sides)
        for setting, scans in product(settings, (True, False)):
            group = [
                side.method
                for side in sides
                if side.setting == setting and (side.method.order == "scan") is scans
            ]
            if group:
                self._train_group(group, setting)

    def _train_group(self, methods: Sequence[Method], setting: Setting) -> None:
        """Train the shared burn-in of these methods, then each method from its end."""
        recipe, listener = self.recipe, self.listener
        burn_in = min(recipe.burn_in, recipe.epochs)
        side = Side(methods[0], setting)
        shared = _burn_in_checkpoint(recipe, side, self.seed, self.place, self.keep_models)
        branch_point: dict[str, Any] | None = None
        for method in methods:
            side = Side(method, setting)
            own = _own_checkpoint(recipe, side, self.seed, self.place, self.keep_models)
            run = build_run(recipe, self.data, [method], seed=self.seed, setting=setting)
            if (state := own.read_run()) is not None:
                run.load_state_dict(state)
                listener.on_recount(burn_in - run.epoch)
            elif recipe.burn_in > 0:
                branch_point = branch_point or self._burn_in(methods, setting, shared)
                run.load_state_dict(branch_point)
            self._train_until(run, recipe.epochs, own, side.name)
            self._store(run, side)
            own.remove()
        if branch_point is None:  # every method resumed from its own checkpoint
            listener.on_recount(-burn_in)
        shared.remove()

    def _burn_in(self, methods: Sequence[Method], setting: Setting, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the state after the burn-in, which holds the history of every method."""
        run = build_run(self.recipe, self.data, methods, seed=self.seed, setting=setting)
        state = checkpoint.read_run()
        # A stopped burn-in of another command may lack the histories of some of our methods.
        if state is not None and set(run.biases) <= set(state["biases"]):
            run.load_state_dict(state)
            self.listener.on_recount(-run.epoch)
        self._train_until(run, min(self.recipe.burn_in, self.recipe.epochs), checkpoint, None)
        state = run.state_dict()
        if checkpoint.due():
            checkpoint.write(state)
        return state

    def _train_until(self, run: Run, epochs: int, checkpoint: Checkpoint, method: str | None) -> None:
        def on_epoch() -> None:
            done = EpochDone(self.recipe.name, self.seed, method, run.epoch, run.test_error[-1])
            self.listener.on_epoch(done)

        train_until(run, epochs, checkpoint, on_epoch, last=self.recipe.epochs)

    def _store(self, run: Run, side: Side) -> None:
        result = trial_result(
            self.recipe,
            self.data,
            side,
            self.seed,
            test_error=run.test_error,
            train_error=run.train_error,
            validation_error=run.validation_error,
            seconds=run.seconds,
        )
        if self.keep_models:
            about = {"config": self.recipe.config(), "seed": self.seed, "method": side.name}
            path = self.place.model_path(self.recipe, name_by_rule(side.name, side.rule), self.seed)
            Checkpoint(path).write(run.state_dict() | about)
        self.place.store.append(result)
        self.listener.on_result(result)


def _own_checkpoint(recipe: Recipe, side: Side, seed: int, place: Place, kept: bool) -> Checkpoint:
    """Return the checkpoint of a one-by-one run; runs that keep their model have another checkpoint."""
    return place.checkpoint(recipe, seed, name_by_rule(side.name, side.rule) + ("-kept" if kept else ""))


def _burn_in_checkpoint(recipe: Recipe, side: Side, seed: int, place: Place, kept: bool) -> Checkpoint:
    plain = Side(METHODS["scan" if side.method.order == "scan" else "uni"], side.setting)
    name = f"burn-in-{'scan' if side.method.order == 'scan' else 'uniform'}"
    if side.setting != PLAIN:
        name += f"-{name_by_rule(plain.name, plain.rule)}"
    return place.checkpoint(recipe, seed, name + ("-kept" if kept else ""))


def remove_stopped(
    recipe: Recipe,
    sides: Sequence[Side],
    seeds: Sequence[int],
    place: Place,
    stored: Collection[RunKey],
    *,
    keep_models: bool,
) -> None:
    """Delete the checkpoints of interrupted one-by-one runs whose results are now stored.

    The checkpoint of a burn-in is kept until all methods that share it have a result.
    """
    if not (place.folder / "checkpoints").exists():
        return
    known = {(name_by_rule(name, rule), seed) for name, seed, rule in stored}
    for seed, side, kept in product(seeds, sides, {False, keep_models}):
        _own_checkpoint(recipe, side, seed, place, kept).remove()
        shared = _burn_in_checkpoint(recipe, side, seed, place, kept)
        state = (shared.read() if shared.path.exists() else None) or {}
        if all((name, seed) in known for name in state.get("biases", ())):
            shared.remove()
