"""Real processes for tests, forked from a server that has imported torch already."""

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from unittest import mock

CONTEXT = multiprocessing.get_context("forkserver")
# The first optimiser of a process imports torch._dynamo, which takes longer than these tests train.
PRELOADED = [
    "torch._dynamo",
    "resume_worker",
    "rank_worker",
    "trainer_worker",
    "launched_worker",
    "lab_worker",
    "blocks",
]


def start(target, *arguments):
    """Start `target(*arguments)` in a process of its own."""
    start_server()
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def start_server():
    """Start the server, unless it runs.

    Python 3.11 does not hand it `sys.path` (cpython issue 117378), and it says nothing about the modules
    that it does not find: every process would import them anew.
    """
    CONTEXT.set_forkserver_preload(PRELOADED)
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))):
        forkserver.ensure_running()


def finish(*processes, seconds=120):
    """Wait for the processes, and fail unless all of them ended well."""
    for process in processes:
        process.join(seconds)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * len(processes), f"exit codes {codes}"


def note_preloaded(file):
    """Write which of the modules this process did not have to import."""
    file.write_text("\n".join(name for name in PRELOADED if name in sys.modules))
