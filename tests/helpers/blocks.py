"""The fenced code blocks of the documentation, and a process that runs one of them as a rank."""

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--((?:(?!-->).)*)-->\s*\Z", re.DOTALL)  # the last one, not all since the first


@dataclass(frozen=True)
class Block:
    """A Python block: its code, where it stands, the comment directly before it and the output after it."""

    code: str
    line: int
    comment: str
    output: str | None

    @property
    def not_run(self) -> str | None:
        """The reason why the block is not run, or None."""
        packages = (self._after("needs") or "").split()
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        return f"needs {' '.join(missing)}" if missing else self._after("not run:")

    @property
    def num_ranks(self) -> int:
        """On how many ranks the block runs as a script; 0 for a block that runs like any other."""
        return int((self._after("run on") or "0").removesuffix("ranks"))

    def _after(self, beginning: str) -> str | None:
        found = self.comment.startswith(beginning)
        return self.comment.removeprefix(beginning).strip() if found else None


def pages() -> list[Path]:
    """Return every page whose blocks are tested."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(text: str) -> list[Block]:
    """Return the Python blocks of a page. A `text` block directly after one is what it must print."""
    blocks, fences = [], list(FENCE.finditer(text))
    for number, fence in enumerate(fences):
        if fence["language"] != "python":
            continue
        comment = COMMENT.search(text[: fence.start()])
        after = fences[number + 1] if number + 1 < len(fences) else None
        prints = after and after["language"] == "text" and not text[fence.end() : after.start()].strip()
        blocks.append(
            Block(
                code=fence["code"],
                line=text[: fence.start("code")].count("\n"),
                comment=comment[1].strip() if comment else "",
                output=after["code"].strip() if prints else None,
            )
        )
    return blocks


def compiled(block: Block, page: Path):
    """Compile a block so that a traceback names the page and its line."""
    return compile("\n" * block.line + block.code, str(page), "exec")


def run_as_rank(block: Block, page: Path, rank: int, port: int) -> None:
    """Run a block as torchrun would start it, and leave without gloo's unreliable tear-down."""
    import torch

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(block.num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    exec(compiled(block, page), {"__name__": "__main__"})
    torch.distributed.barrier()
    os._exit(0)
