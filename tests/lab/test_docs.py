"""The blocks of Python in docs/lab.md run as they stand."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "lab.md"


def test_the_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    assert "own: 3 splits into 360 training, 120 validation and 120 test examples." in capsys.readouterr().out
    assert [result.method for result in names["results"]] == ["scan", "wd"] * 2
    assert (tmp_path / "runs" / "digits-clean.jsonl").exists()
