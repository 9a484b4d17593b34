"""Real processes for tests, forked from a server that has imported torch already."""

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
# The first optimiser of a process imports torch._dynamo, which takes longer than these tests train.
CONTEXT.set_forkserver_preload(["torch._dynamo", "resume_worker", "rank_worker"])


def start(target, *arguments):
    """Start `target(*arguments)` in a process of its own."""
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def finish(*processes, seconds=120):
    """Wait for the processes, and fail unless all of them ended well."""
    for process in processes:
        process.join(seconds)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * len(processes), f"exit codes {codes}"
