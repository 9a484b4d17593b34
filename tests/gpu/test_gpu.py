"""What only a CUDA device can show. CI has none: `make test-gpu` runs these on a machine that has one."""

import os

import pytest
import torch
from torch import nn

import activebias as ab

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

METHODS = [*ab.METHODS, "auto", "sauto"]


def batches(num_steps, num_instances=500, batch_size=64, seed=0):
    """Seeded (index, prob) batches with repeated instances."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_steps):
        yield (
            torch.randint(num_instances, (batch_size,), generator=generator),
            torch.rand(batch_size, generator=generator),
        )


@pytest.fixture
def no_waiting():
    """Make every host synchronisation an error."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("graphs", [False, True])
def test_the_gpu_computes_what_the_cpu_computes(method, window, graphs):
    made = [
        ab.ActiveBias(method, num_instances=500, num_classes=10, window=window, device=device)
        for device in ("cpu", "cuda")
    ]
    for bias in made:
        bias.history.make_room(64)
        if graphs:
            bias.sampler(batch_size=64)  # a known batch size: the GPU's steps are graphs from the start
        bias.set_epoch(0)
    assert bool(made[1]._memory._gpu._graphed_loss_step._graphs) == graphs
    for index, prob in batches(30):
        on_cpu, on_gpu = (bias.weight(index).cpu() for bias in made)
        torch.testing.assert_close(on_gpu, on_cpu, atol=1e-5, rtol=1e-5)
        for bias in made:
            bias.record(index.to(bias.device), prob.to(bias.device))
    torch.testing.assert_close(made[1].scores.cpu(), made[0].scores, atol=1e-5, rtol=1e-5)
    for on_gpu, on_cpu in zip(made[1].history.values(), made[0].history.values(), strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("storage", ["float32", "float16"])
@pytest.mark.parametrize("graphs", [False, True])
def test_a_step_does_not_wait_for_the_device(method, window, storage, graphs, no_waiting):
    torch.cuda.set_sync_debug_mode("default")
    bias = ab.ActiveBias(
        method, num_instances=500, num_classes=10, window=window, storage=storage, device="cuda"
    )
    if graphs:
        bias.sampler(batch_size=64)
    bias.set_epoch(0)
    index = torch.arange(64, device="cuda")
    targets = torch.randint(10, (64,), device="cuda")
    logits = torch.randn(64, 10, device="cuda", requires_grad=True)
    token_logits = torch.randn(4, 16, 10, device="cuda", requires_grad=True)
    from_a_loader = torch.arange(64)
    torch.cuda.set_sync_debug_mode("error")
    bias.loss(logits, targets, index).backward()
    bias.loss(logits, targets, from_a_loader).backward()
    assert graphs or bias._memory._gpu._graphed_loss_step._seen[(64,)] == 2
    bias.loss(token_logits, targets.view(4, 16), index.view(4, 16)).backward()
    bias.weigh(logits.sum(-1), torch.full((64,), 0.5, device="cuda"), index).backward()
    bias.weight(index)
    bias.record(index, torch.full((64,), 0.5, device="cuda"))


def test_a_step_works_inside_a_cuda_graph():
    bias = ab.ActiveBias("wpv", num_instances=500, num_classes=10, device="cuda")
    eager = ab.ActiveBias("wpv", num_instances=500, num_classes=10, device="cuda")
    for each in (bias, eager):
        each.set_epoch(0)
        each.history.make_room(64)
    all_index = torch.stack([index for index, _ in batches(20)]).cuda()
    all_logits = torch.randn(20, 64, 10, device="cuda")
    targets = torch.randint(10, (64,), device="cuda")
    index, logits = all_index[0].clone(), all_logits[0].clone()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        warm = ab.ActiveBias("wpv", num_instances=500, num_classes=10, device="cuda")
        warm.set_epoch(0)
        warm.loss(logits, targets, index)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = bias.loss(logits, targets, index)
    for step in range(20):
        index.copy_(all_index[step])
        logits.copy_(all_logits[step])
        graph.replay()
        expected = eager.loss(all_logits[step], targets, all_index[step])
        torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(bias.scores, eager.scores)
    assert bias.history.num_overwritten == 0


def test_next_to_a_compiled_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
    compiled = torch.compile(model)
    bias = ab.ActiveBias("wpv", num_instances=500, num_classes=10, device="cuda")
    bias.set_epoch(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.randn(500, 20, device="cuda"), torch.randint(10, (500,), device="cuda")
    first = None
    for step in range(60):
        index = torch.randint(500, (64,), generator=torch.Generator().manual_seed(step)).cuda()
        loss = bias.loss(compiled(inputs[index]), targets[index], index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    assert loss.item() < first


def test_a_whole_step_may_be_compiled():
    bias = ab.ActiveBias("wpv", num_instances=500, num_classes=10, device="cuda", window=5)
    plain = ab.ActiveBias("wpv", num_instances=500, num_classes=10, device="cuda", window=5)
    bias.set_epoch(0)
    plain.set_epoch(0)
    step = torch.compile(lambda logits, targets, index: bias.loss(logits * 1.0, targets, index))
    targets = torch.randint(10, (64,), device="cuda")
    for index, _ in batches(5):
        logits = torch.randn(64, 10, device="cuda")
        expected = plain.loss(logits, targets, index.cuda())
        torch.testing.assert_close(step(logits, targets, index.cuda()), expected)
    torch.testing.assert_close(bias.scores, plain.scores)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_under_autocast_probabilities_are_float32(dtype):
    model = nn.Linear(20, 10).cuda()
    bias = ab.ActiveBias("wpv", num_instances=64, num_classes=10, device="cuda")
    bias.set_epoch(0)
    inputs, targets = torch.randn(64, 20, device="cuda"), torch.randint(10, (64,), device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        logits = model(inputs)
        loss = bias.loss(logits, targets, torch.arange(64, device="cuda"))
    assert logits.dtype == dtype
    assert loss.dtype == torch.float32
    expected = logits.float().softmax(-1).gather(-1, targets[:, None]).squeeze(-1)
    torch.testing.assert_close(bias.history.values()[0][:, 1], expected)


def test_a_full_history_on_the_gpu_grows_with_the_epochs():
    bias = ab.ActiveBias("scan", num_instances=100, num_classes=10, device="cuda")
    everything = torch.arange(100, device="cuda")
    for epoch in range(40):
        bias.set_epoch(epoch)
        bias.record(everything, torch.full((100,), (epoch + 1) / 50, device="cuda"))
    values, valid = bias.history.values()
    assert valid.sum(1).tolist() == [41] * 100
    torch.testing.assert_close(values[7, 1:].cpu(), torch.arange(1, 41) / 50)
    assert bias.history.num_overwritten == 0


def test_graphs_follow_a_history_that_grows_and_gradients_keep_their_weights():
    settings = {"num_instances": 128, "num_classes": 10, "burn_in": 2}
    made = [ab.ActiveBias("wpv", **settings, device=device) for device in ("cpu", "cuda")]
    for bias in made:
        bias.sampler(batch_size=64)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(30):
        for bias in made:
            bias.set_epoch(epoch)
        for index in torch.randperm(128, generator=generator).split(64):
            values = torch.randn(64, 10, generator=generator)
            targets = torch.randint(10, (64,), generator=generator)
            gradients = []
            for bias in made:
                logits = values.clone().to(bias.device).requires_grad_()
                loss = bias.loss(logits, targets.to(bias.device), index.to(bias.device))
                # A second step before the backward pass: the first one's weights must survive it.
                bias.weight(index.to(bias.device))
                loss.backward()
                gradients.append(logits.grad.cpu())
            torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(made[1].scores.cpu(), made[0].scores, atol=1e-5, rtol=1e-5)
    assert made[1].history.values()[1].sum(1).tolist() == [31] * 128


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("graphs", [False, True])
def test_the_plain_loss_is_the_cpus_and_leaves_ignored_targets_out(method, graphs):
    settings = {"num_instances": 500, "num_classes": 10}
    made = [ab.ActiveBias(method, **settings, device=device) for device in ("cpu", "cuda")]
    generator = torch.Generator().manual_seed(0)
    for bias in made:
        bias.history.make_room(64)
        if graphs:
            bias.sampler(batch_size=64)
        bias.set_epoch(0)
    for index, _ in batches(7):
        values = torch.randn(64, 10, generator=generator)
        targets = torch.randint(10, (64,), generator=generator)
        targets[::5] = -100
        losses, gradients = [], []
        for bias in made:
            logits = values.clone().to(bias.device).requires_grad_()
            losses.append(bias.loss(logits, targets.to(bias.device), index.to(bias.device)))
            losses[-1].backward()
            gradients.append(logits.grad.cpu())
        torch.testing.assert_close(losses[1].cpu(), losses[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(made[1].scores.cpu(), made[0].scores, atol=1e-5, rtol=1e-5)
    for on_gpu, on_cpu in zip(made[1].history.values(), made[0].history.values(), strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu)
    assert made[1].num_skipped == made[0].num_skipped == 0


@pytest.mark.parametrize("index_device", ["cpu", "cuda"])
def test_the_history_may_stay_on_the_cpu_while_the_model_is_on_the_gpu(index_device):
    made = [ab.ActiveBias("wpv", num_instances=500, num_classes=10) for _ in range(2)]
    for bias in made:
        bias.set_epoch(0)
    generator = torch.Generator().manual_seed(0)
    for index, _ in batches(5):
        logits = torch.randn(64, 10, generator=generator)
        targets = torch.randint(10, (64,), generator=generator)
        expected = made[0].loss(logits, targets, index)
        on_gpu = logits.cuda(), targets.cuda(), index.to(index_device)
        torch.cuda._sleep(10**8)  # a busy device: what is not waited for has not come yet
        loss = made[1].loss(*on_gpu)
        torch.testing.assert_close(loss.cpu(), expected)
    for theirs, ours in zip(made[1].history.values(), made[0].history.values(), strict=True):
        torch.testing.assert_close(theirs, ours)


def test_shapes_that_do_not_match_are_refused_before_anything_changes():
    bias = ab.ActiveBias("wpv", num_instances=64, num_classes=10, device="cuda")
    bias.set_epoch(0)
    logits, targets = torch.randn(8, 10, device="cuda"), torch.zeros(8, dtype=torch.int64, device="cuda")
    with pytest.raises(ValueError, match="index"):
        bias.loss(logits, targets, torch.arange(7, device="cuda"))
    assert bias.history.values()[1].sum(1).tolist() == [1] * 64


@pytest.fixture(params=[False, True], ids=["", "deterministic"])
def deterministic(request):
    """Let torch do as it likes, or refuse what may vary between runs."""
    torch.use_deterministic_algorithms(request.param)
    yield request.param
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("num_instances", [200, 20_000])  # one pass over all, and the tree of sums
def test_the_gpu_draws_what_the_cpu_draws(num_instances, deterministic):
    drawn = []
    prob = torch.rand(num_instances, generator=torch.Generator().manual_seed(0))
    for device in ("cpu", "cuda"):
        # In a window of one a score is 1 - p: the same bits on both.
        bias = ab.ActiveBias("sd", num_instances=num_instances, num_classes=10, window=1, device=device)
        bias.set_epoch(0)
        bias.record(torch.arange(num_instances), prob)
        drawn.append(list(bias.sampler(batch_size=16)))
    assert drawn[1] == drawn[0]


def test_a_wide_history_has_the_cpus_scores(deterministic, no_waiting):
    torch.cuda.set_sync_debug_mode("default")
    made = [ab.ActiveBias("spv", num_instances=20, num_classes=10, device=d) for d in ("cpu", "cuda")]
    for bias in made:
        bias.history.make_room(400)
        bias.set_epoch(0)
    for index, prob in batches(100, num_instances=20):
        prob = prob.round(decimals=2)
        made[0].record(index, prob)
        index, prob = index.cuda(), prob.cuda()
        torch.cuda.set_sync_debug_mode("default" if deterministic else "error")
        made[1].record(index, prob)
        torch.cuda.set_sync_debug_mode("default")
    assert made[1].history.values()[1].sum(1).max() > 256
    assert made[1].history.num_overwritten == 0
    torch.testing.assert_close(made[1].scores.cpu(), made[0].scores, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("graphs", [False, True])
def test_rows_move_in_a_step_without_waiting(graphs, no_waiting):
    torch.cuda.set_sync_debug_mode("default")
    made = [ab.ActiveBias("sd", num_instances=300, num_classes=10, device=d) for d in ("cpu", "cuda")]
    generator = torch.Generator().manual_seed(0)
    for epoch in range(4):
        for bias in made:
            if graphs:
                bias.sampler(batch_size=64)
            bias.set_epoch(epoch)
        for _ in range(10):  # an instance of these comes far more often than any score says
            index = torch.cat([torch.randint(300, (60,), generator=generator), torch.tensor([7, 7, 8, 9])])
            prob = torch.rand(64, generator=generator)
            made[0].record(index, prob)
            index, prob = index.cuda(), prob.cuda()
            torch.cuda.set_sync_debug_mode("error")
            made[1].record(index, prob)
            torch.cuda.set_sync_debug_mode("default")
    assert made[1].history.num_overwritten == 0
    for ours, theirs in zip(made[1].history.values(), made[0].history.values(), strict=True):
        assert torch.equal(ours.cpu(), theirs)
    torch.testing.assert_close(made[1].scores.cpu(), made[0].scores, atol=1e-5, rtol=1e-5)


def test_graphs_made_under_inference_mode_serve_outside_of_it():
    bias = ab.ActiveBias("wpv", num_instances=64, num_classes=10, device="cuda")
    bias.sampler(batch_size=64)
    with torch.inference_mode():
        bias.set_epoch(0)
    logits = torch.randn(64, 10, device="cuda", requires_grad=True)
    targets, index = torch.randint(10, (64,), device="cuda"), torch.arange(64, device="cuda")
    bias.loss(logits, targets, index).backward()
    bias.record(index, torch.full((64,), 0.5, device="cuda"))
    assert bias.history.values()[1].sum(1).tolist() == [3] * 64


def test_an_overflowing_history_keeps_the_latest_and_says_so():
    bias = ab.ActiveBias("wd", num_instances=100, num_classes=10, device="cuda")
    bias.set_epoch(0)
    room = bias.history.capacity
    index = torch.zeros(1, dtype=torch.int64, device="cuda")
    for visit in range(room + 4):
        bias.record(index, torch.full((1,), visit / 1000, device="cuda"))
    assert bias.history.num_overwritten == 5
    bias.set_epoch(1)
    values, valid = bias.history.values([0])
    assert valid[0].sum() == room
    torch.testing.assert_close(values[0, :room].cpu(), torch.arange(4, room + 4) / 1000)
    assert bias.history.num_overwritten == 5


def test_unusable_probabilities_are_skipped_and_counted():
    bias = ab.ActiveBias("wpv", num_instances=10, num_classes=10, device="cuda")
    bias.set_epoch(0)
    before = bias.scores
    index = torch.tensor([0, 1, 2, 3, -1, 10, 99], device="cuda")
    bad = [float("nan"), float("inf"), 1.5, 0.5, 0.5, 0.5, 0.5]
    bias.record(index, torch.tensor(bad, device="cuda"))
    assert bias.num_skipped == 6
    assert bias.history.values()[1].sum(1).tolist() == [1, 1, 1, 2] + [1] * 6
    torch.testing.assert_close(bias.scores[:3], before[:3])


@pytest.mark.parametrize("method", METHODS)
def test_a_state_moves_between_devices(method, tmp_path):
    there = ab.ActiveBias(method, num_instances=500, num_classes=10, device="cuda")
    there.set_epoch(0)
    for index, prob in batches(10):
        there.record(index.cuda(), prob.cuda())
    there.save(tmp_path / "state.pt")
    here = ab.ActiveBias(method, num_instances=500, num_classes=10)
    here.load(tmp_path / "state.pt")
    torch.testing.assert_close(here.scores, there.scores.cpu())
    torch.testing.assert_close(here.weights(), there.weights().cpu())


@pytest.mark.skipif(not torch.distributed.is_nccl_available(), reason="needs nccl")
def test_the_exchange_works_over_nccl():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    try:
        from activebias.distributed import Ranks

        index = torch.tensor([3, 16_777_217, 49_999], device="cuda")
        prob = torch.tensor([0.1, 0.2, 0.3], device="cuda")
        torch.cuda.set_sync_debug_mode("error")
        all_index, all_prob = Ranks(None).exchange(index, prob, size=4)
        torch.cuda.set_sync_debug_mode("default")
        assert all_index.tolist() == [3, 16_777_217, 49_999, -1]
        assert torch.equal(all_prob[:3], prob)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.distributed.destroy_process_group()
