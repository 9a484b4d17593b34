"""Code in a process of its own that has imported torch and NumPy, and nothing of this package yet.

One Python imports torch, which takes two seconds, and forks a process for every piece of code.
"""

import json
import subprocess
import sys

SERVER = """
import json, os, sys, tempfile, traceback
import numpy, torch, torch.distributed, torch.utils.data

def run(code, arguments, path):
    sys.argv = ["-c", *arguments]
    sys.path[:0] = path
    try:
        exec(compile(code, "<fresh>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = run(*json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [file.seek(0) or file.read() for file in (out, err)]
    print(json.dumps([code, *texts]), flush=True)
"""


class FreshPython:
    """Runs code in fresh processes, one after the other."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, code: str, *arguments: object, path: tuple[object, ...] = ()) -> tuple[int, str, str]:
        """Return the exit code, and what the code wrote to standard output and to standard error."""
        request = [code, [str(each) for each in arguments], [str(each) for each in path]]
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return tuple(json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        self._server.communicate(timeout=60)
