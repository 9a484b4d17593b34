"""Every Python block of the documentation runs, and what the pages promise is there."""

import re
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import activebias as ab
import blocks
import processes
from activebias import lab
from activebias.lab.paper import paper_rows, paper_value

README = blocks.ROOT / "README.md"
CARDS = blocks.ROOT / "docs" / "methods"

# Pages that are linked before they are written.
PENDING: set[str] = set()


def name(page):
    return str(page.relative_to(blocks.ROOT))


@pytest.mark.parametrize("page", [page for page in blocks.pages() if page != README], ids=name)
def test_blocks_run(page, tmp_path, monkeypatch, capsys):
    run(page, monkeypatch, tmp_path, capsys)


def test_the_readme_runs_and_its_first_block_shows_a_gain(tmp_path, monkeypatch, capsys):
    first, *_ = run(README, monkeypatch, tmp_path, capsys)
    error = {
        method: float(value)
        for method, value in re.findall(r"^(\w+): test error ([\d.]+) ±", first, re.MULTILINE)
    }
    assert list(error) == ["scan", "wtc"]
    assert error["wtc"] < error["scan"] - 1, "over forty seeds the gain is 1.9 ± 0.1 points"


def run(page, monkeypatch, tmp_path, capsys):
    """Run the blocks of a page in order, in one namespace and an empty folder; return what each printed."""
    monkeypatch.chdir(tmp_path)
    namespace, outputs = {"__name__": "__main__"}, []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for block in blocks.python_blocks(page.read_text(encoding="utf-8")):
            if block.not_run is not None:
                with capsys.disabled():
                    print(f"\n{page.name}:{block.line}: not run: {block.not_run}")
            elif block.num_ranks:
                run_on_ranks(block, page)
            else:
                capsys.readouterr()
                exec(blocks.compiled(block, page), namespace)
                printed = capsys.readouterr().out.strip()
                assert block.output in (None, printed), f"{page.name}:{block.line} printed:\n{printed}"
                outputs.append(printed)
    return outputs


def run_on_ranks(block, page):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [processes.start(blocks.run_as_rank, block, page, rank, port) for rank in range(block.num_ranks)]
    processes.finish(*ranks)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nraise KeyError\n```", KeyError),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```", AssertionError),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", AssertionError),
        ("<!-- run on 2 ranks -->\n```python\nraise KeyError\n```", AssertionError),
    ],
    ids=["raises", "shared namespace", "other output", "on ranks"],
)
def test_a_wrong_block_fails(text, error, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(error):
        run(page, monkeypatch, tmp_path, capsys)


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("not run: wants a GPU", "wants a GPU"),
        ("needs torch no_such_package", "needs no_such_package"),
        ("needs torch", None),
        ("any other comment", None),
    ],
)
def test_a_block_that_is_not_run_says_why(comment, reason, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"<!-- {comment} -->\n```python\nraise KeyError\n```\n")
    (block,) = blocks.python_blocks(page.read_text())
    assert block.not_run == reason
    with pytest.raises(KeyError) if reason is None else nullcontext():
        run(page, monkeypatch, tmp_path, capsys)


def test_readme_shows_the_two_commands():
    shell = [
        fence["code"] for fence in blocks.FENCE.finditer(README.read_text()) if fence["language"] == "sh"
    ]
    lines = [line.split("#")[0].strip() for code in shell for line in code.splitlines()]
    assert {"make demo", "make test", "pip install -c constraints.txt -e ."} <= set(lines)


@pytest.mark.parametrize("page", [*blocks.pages(), blocks.ROOT / "CONTRIBUTING.md"], ids=name)
def test_nobody_is_sent_to_a_release_that_does_not_exist(page):
    """Until there is a release, `pip install activebias` fails."""
    assert not re.search(r"pip install [\"']?activebias", page.read_text(encoding="utf-8"))


def test_readme_is_short():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200


@pytest.mark.parametrize("page", blocks.pages(), ids=name)
def test_lines_are_short(page):
    """Outside tables, whose rows cannot be wrapped."""
    lines = page.read_text(encoding="utf-8").splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > 110 and not line.startswith("|")]
    assert not long, f"{name(page)}: lines {long} are longer than 110 characters"


def test_readme_says_what_the_extras_bring():
    tomllib = pytest.importorskip("tomllib", reason="Python reads TOML from 3.11 on")
    extras = tomllib.loads((blocks.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pattern = r"^pip install -c constraints.txt -e '\.\[(\w+)\]' +# (.+)$"
    lines = dict(re.findall(pattern, README.read_text(), re.MULTILINE))
    lines["all"] = lines["all"].replace("report", f"report {lines['report']}")

    def named(requirement):  # the package, or the extras of our own
        package, *own_extras = re.findall(r"[a-z]+", requirement)
        return own_extras if package == "activebias" else [package]

    for extra in ("report", "all"):
        for name in (name for requirement in extras[extra] for name in named(requirement)):
            assert name in lines[extra], f"{extra} brings {name}, which Install does not say"


def test_readme_is_in_order():
    headings = re.findall(r"^## (.+)$", README.read_text(), re.MULTILINE)
    assert headings == [
        "Quick start",
        "Install",
        "Your own data and wrong labels",
        "Which method",
        "Frameworks",
        "Results",
        "When it does not help",
        "Citation",
    ]


def test_the_results_of_the_readme_are_those_of_the_reproduction():
    """Every row of the paper that was trained stands in the README's table, with the page's numbers."""
    page = (blocks.ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    tables = re.findall(
        r"^\*\*(\S+), (\d+) trials.*\n\n\| method \| n \| ours: best test error .*\n\|[-|: ]+\n((?:\|.+\n)+)",
        page,
        re.MULTILINE,
    )
    expected = {}
    for row, trials, lines in tables:
        cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines.splitlines()]
        ours, paper = ({line[0]: line[column] for line in cells} for column in (2, 3))
        methods = ("Scan", "WPV", "WTC")
        expected[row] = [
            trials,
            *(ours[method] for method in methods),
            *(paper[method] for method in methods),
        ]
    shown = {
        row: [cell.strip() for cell in rest.split("|")]
        for row, rest in re.findall(
            r"^\| \[[^]]+\]\(docs/reproduction.md#([\w-]+)\) \|(.+)\|$", README.read_text(), re.MULTILINE
        )
    }
    assert shown == {row: cells for row, cells in expected.items() if row in paper_rows()}
    assert len(shown) == 9


def test_the_default_method_is_the_one_that_the_rows_choose():
    """The counts of docs/method.md, from the stored trials."""
    text = (blocks.ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    counts = {metric: [0, 0] for metric in ("best_test_error", "last10_test_error")}
    num_better = num_rows = 0
    for recipe in (lab.get_recipe(row) for row in paper_rows()):
        results = lab.ResultStore(blocks.ROOT / "results").load(recipe.name, recipe.config())
        num_rows += bool(results)
        for metric in counts if results else ():
            of = {method: {} for method in ("scan", "wpv", "wtc")}
            for result in results:
                of.get(result.method, {})[result.seed] = getattr(result, metric)
            difference = torch.tensor([of["wtc"][seed] - of["wpv"][seed] for seed in of["scan"]])
            apart = difference.mean() / (difference.std() / len(difference) ** 0.5)
            counts[metric][0] += int(apart < -2)
            counts[metric][1] += int(apart > 2)
            if metric == "best_test_error":
                scan, *others = (sum(of[method].values()) for method in ("scan", "wpv", "wtc"))
                num_better += max(others) < scan
    assert counts == {"best_test_error": [3, 0], "last10_test_error": [5, 0]}
    assert (num_better, num_rows) == (9, 9)
    assert "in three of nine rows" in text
    assert "in five of nine rows" in text


@pytest.mark.parametrize("method", [*ab.METHODS, "auto"])
def test_every_method_has_a_row_and_a_card(method):
    assert README.read_text().count(f"\n| [`{method}`](docs/methods/{method}.md) |") == 1
    card = (CARDS / f"{method}.md").read_text()
    headings = re.findall(r"^## (.+)$", card, re.MULTILINE)
    assert headings == [
        "What it is",
        "How to use it",
        "Hyper-parameters",
        "Cost",
        "When it helps and when it fails",
        *(["The equations"] if method == "auto" else []),  # other cards have one formula, in "What it is"
        "Attribution",
    ]
    assert f'ab.ActiveBias("{method}"' in card
    assert blocks.python_blocks(card)


def test_there_is_no_card_without_a_method():
    assert {card.stem for card in CARDS.glob("*.md")} == {*ab.METHODS, "auto"}


@pytest.mark.parametrize("method", ab.METHODS)
def test_the_numbers_of_a_card_are_the_papers(method):
    """Each table of a card has a line of methods above and a line for every row of the paper."""
    card = (CARDS / f"{method}.md").read_text()
    tables = re.findall(r"^\| row \|(.+)\|\n\|[-|]+\|\n((?:\|.+\|\n)+)", card, re.MULTILINE)
    seen = set()
    for header, lines in tables:
        columns = [column.strip(" `*") for column in header.split("|")]
        for line in lines.splitlines():
            row, *cells = (cell.strip(" `*") for cell in line.strip("|").split("|"))
            seen.add(row)
            for column, cell in zip(columns, cells, strict=True):
                value, error = paper_value(row, column, "best_test_error")
                assert cell == f"{value:.2f} ± {error:.2f}", (row, column)
    expected = {row for row in paper_rows() if paper_value(row, method, "best_test_error")}
    assert seen == expected


def test_the_design_names_every_module_of_the_core():
    modules = {module.name for module in Path(ab.__file__).parent.glob("*.py")} - {
        "__init__.py",
        "__main__.py",
    }
    text = (blocks.ROOT / "docs/design.md").read_text()
    named = set(re.findall(r"^\| `(\w+\.py)` \|", text, re.MULTILINE))
    assert named >= modules, f"not in docs/design.md: {sorted(modules - named)}"


def test_the_modules_of_the_design_exist():
    rows = re.findall(r"^\| (`.*?) \|", (blocks.ROOT / "docs/design.md").read_text(), re.MULTILINE)
    named = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", " ".join(rows)))
    there = {module.name for module in Path(ab.__file__).parent.rglob("*.py")}
    assert len(named) > 100
    assert named <= there, f"in docs/design.md, but gone: {sorted(named - there)}"


@pytest.mark.parametrize(
    "page", [*blocks.pages(), *(blocks.ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md"))], ids=name
)
def test_links_lead_somewhere(page):
    text = blocks.FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        if not linked.exists() and str(linked.relative_to(blocks.ROOT)) in PENDING:
            continue
        assert linked.exists(), f"{name(page)} links to {target}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, f"{name(page)} links to {target}, which has no such heading"
