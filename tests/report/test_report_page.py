"""The report's file, without a browser: what is in it, what stays out, and what is refused."""

import base64
import gzip
import json
import re
import subprocess
import sys
import zipfile
from importlib import resources

import numpy as np
import pytest

import activebias as ab
import blocks
import report_runs as runs
from activebias.report import page, summary
from activebias.report.encoding import NO_VISIT, Blobs, script_json, smallest, visits_kept
from activebias.report.thumbnails import make_thumbnails
from activebias.report.view import view_run
from activebias.runs.contents import Inputs
from activebias.runs.folder import read_run
from command import run

pytest.importorskip("plotly", reason="the report is not tested: plotly is not installed")

ASSETS = resources.files("activebias.report").joinpath("assets")


def grey(num, side=6):
    return np.random.default_rng(0).integers(0, 255, (num, side, side), dtype=np.uint8)


def small_run(path, num=40, **changes):
    settings = {"inputs": Inputs(images=grey(num)), "class_names": ["cat", "dog", "cow"]}
    return runs.make_run(path, num=num, **settings | changes)


def data_of(text):
    """Return the page's JSON, and a function that unpacks one of its blocks."""
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found[1])
    blobs = dict(re.findall(r'<script type="text/plain" id="blob-(\d+)">([^<]*)</script>', text))

    def unpack(described):
        content = gzip.decompress(base64.b64decode(blobs[str(described["blob"])]))
        return np.frombuffer(content, dtype=described["type"])

    return data, unpack


def test_the_numbers_of_the_page_are_the_runs(tmp_path):
    folder = small_run(tmp_path / "run")
    view = view_run(folder)
    text = page.write_report([folder], tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    data, unpack = data_of(text)
    (run,) = data["runs"]
    for name in ("label", "believed", "believed_prob", "label_prob", "weight", "position"):
        np.testing.assert_array_equal(unpack(run["columns"][name]), getattr(view.instances, name))
    for name in ("score", "confidence", "variability", "correctness"):
        expected = getattr(view.audit, name).astype(np.float32)
        np.testing.assert_array_equal(unpack(run["columns"][name]), expected)
    history = unpack(run["history"]).reshape(40, -1)
    values, valid = folder.history()
    assert (history[:, 0] == NO_VISIT).all()  # the 1/C that a history begins with is no visit
    assert valid[:, 0].all()
    np.testing.assert_allclose(history[:, 1:5] / 254, values[:, 1:5], atol=0.5 / 254 + 1e-6)
    assert run["history"]["visits"][1:5] == [1, 2, 3, 4]
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["report.html"]


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path):
    text = page.write_report([small_run(tmp_path / "run")], tmp_path / "r.html").read_text(encoding="utf-8")
    own = text.replace(page.plotly_source(), "")
    assert re.findall(r"""(?:src|href)=["']?(?!data:|#)[^"' >]+""", own) == []
    assert "http://" not in own
    assert "https://" not in own
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', own)[1]
    assert "default-src &#x27;none&#x27;" in policy
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    assert policy.count("sha256-") == 1 + len(page.SCRIPTS)


def test_no_script_of_the_package_parses_markup():
    for asset in ASSETS.iterdir():
        text = asset.read_text("utf-8")
        assert len(text.splitlines()) <= 400, asset.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, f"{asset.name} uses {word}"


def test_the_wheel_holds_the_assets(tmp_path):
    """What a user installs has the page's files too."""
    pytest.importorskip("hatchling")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    result = subprocess.run(
        [sys.executable, "-c", build, tmp_path],
        cwd=blocks.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for asset in ASSETS.iterdir():
        assert f"activebias/report/assets/{asset.name}" in names


@pytest.mark.parametrize(
    "text", ["</script>", "<!--<script>", "\u2028\u2029", "&lt;", "]]>", 'quote " and \\']
)
def test_json_cannot_end_its_script(text):
    written = script_json({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert not set("<>&\u2028\u2029") & set(written)


def test_equal_blocks_are_stored_once():
    blobs = Blobs()
    assert blobs.add_texts(["a"]) == blobs.add_texts(["a"]) != blobs.add_texts(["b"])
    assert blobs.html().count("<script") == 2


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="Expected 32-bit integers, but got 2147483648"):
        smallest(np.array([2**31]))


def test_long_histories_are_thinned_evenly():
    kept = visits_kept(60_000, 1000)
    assert len(kept) == 200
    assert (kept[0], kept[-1]) == (0, 999)
    assert set(np.diff(kept)) <= {5, 6}


def test_pictures_keep_to_their_budget_and_the_worst_come_first():
    images, order = grey(2000, 12), np.random.default_rng(1).permutation(2000)
    everything = make_thumbnails(images, order, budget=10_000_000)
    assert everything.num_shown == 2000
    budget = everything.num_bytes // 2
    some = make_thumbnails(images, order, budget)
    assert 0 < some.num_shown < 2000
    assert some.num_bytes <= budget
    np.testing.assert_array_equal(some.places[order[: some.num_shown]], np.arange(some.num_shown))
    assert (some.places[order[some.num_shown :]] == -1).all()
    assert make_thumbnails(images, order, budget=0).sheets == []


@pytest.mark.parametrize(
    ("shape", "cell"),
    [((3, 200, 100), (48, 96)), ((3, 32, 32, 3), (32, 32)), ((3, 5, 7, 1), (7, 5)), ((3, 1, 500), (96, 1))],
)
def test_pictures_of_every_shape(shape, cell):
    images = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    found = make_thumbnails(images, np.arange(3), 1_000_000)
    assert found.cell == cell
    assert found.num_shown == 3


def test_texts_keep_to_their_budget(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = pandas.DataFrame({"text": [f"{i:04d}" + "x" * 96 for i in range(40)], "n": [1.5, None] * 20})
    view = view_run(small_run(tmp_path / "run", kind="text", inputs=Inputs(rows=rows)))
    assert [field.name for field in view.fields] == ["text", "n"]
    assert view.fields[1].texts == ["1.5", ""]
    fields, number = page.fit_texts(view, 10_000)
    assert number == 40
    fields, number = page.fit_texts(view, 1000)
    assert number == 9  # 100 letters each, and 3 for the first 1.5
    worst, best = view.audit.order[0], view.audit.order[-1]
    assert fields[0].texts[fields[0].codes[worst]].startswith(f"{worst:04d}")
    assert fields[0].codes[best] == len(fields[0].texts)  # nothing there


def test_a_long_text_is_cut(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = pandas.DataFrame({"text": ["long " * 1000] * 40})
    (field,), _ = page.fit_texts(view_run(small_run(tmp_path / "run", inputs=Inputs(rows=rows))), 10**6)
    assert len(field.texts[0]) == page.LONGEST_TEXT
    assert field.texts[0].endswith("…")


def test_the_summary_counts_right_on_flipped_digits(trained_digits):
    folder, flipped = trained_digits
    view = view_run(folder)
    assert flipped[view.suspected].mean() > 0.75  # most suspects are flipped labels,
    assert view.suspected[flipped].mean() > 0.9  # and most flipped labels are suspects;
    assert flipped[view.sure].mean() > 0.95  # of the sure ones nearly all
    text = " ".join(summary.sentences(view))
    assert f"For {view.suspected.sum():,} of 1,437 images" in text
    assert f"The model was sure about {view.sure.sum():,} of them" in text
    assert "weak judge" in text  # a fifth of the validation labels is flipped too
    assert [figure["value"] for figure in summary.figures(view)][1] == f"{view.suspected.sum():,}"


def test_the_summary_of_a_run_without_suspects(tmp_path):
    view = view_run(small_run(tmp_path / "run", class_names=["only", "other"], num=4))
    assert not view.suspected.any()
    assert "no label is suspected" in " ".join(summary.sentences(view))
    assert len(summary.advice(view)) == 1


def test_warnings_and_what_was_skipped_lead_the_advice(tmp_path):
    changes = {"warnings": ("It memorises.",), "skipped": ({"what": "a.png", "why": "cannot be read"},)}
    view = view_run(small_run(tmp_path / "run", **changes))
    advice = summary.advice(view)
    assert "warning" in advice[0]
    assert "skipped inputs" in advice[-1]


def test_runs_of_one_name_are_told_apart(tmp_path):
    views = [view_run(small_run(tmp_path / name / "run")) for name in ("a", "b")]
    views.append(view_run(small_run(tmp_path / "other", num=20)))
    assert page.distinct_names(views) == ["run (1)", "run (2)", "other"]
    table = summary.comparison(views, page.distinct_names(views))
    assert [row[0] for row in table["rows"]] == ["run (1)", "run (2)", "other"]
    assert "different data" in table["note"]
    assert "different data" not in summary.comparison(views[:2], ["a", "b"])["note"]


def test_the_command(tmp_path):
    small_run(tmp_path / "run")
    out = tmp_path / "report.html"
    assert "Report:" in run("report", tmp_path / "run", "--out", out).output
    result = run("report", tmp_path / "run", tmp_path / "run", "--out", out, "--json")
    assert json.loads(result.stdout) == {
        "out": str(out),
        "bytes": out.stat().st_size,
        "runs": [str(tmp_path / "run")] * 2,
    }
    assert ab.__version__ in out.read_text(encoding="utf-8")


def test_errors_are_one_sentence(tmp_path):
    folder = small_run(tmp_path / "run")
    assert "There is no run folder" in run("report", tmp_path / "none", code=1).stderr
    assert "is a folder" in run("report", tmp_path / "run", "--out", tmp_path, code=1).stderr
    with pytest.raises(ValueError, match="Expected at least one run"):
        page.write_report([], tmp_path / "r.html")
    with pytest.raises(ValueError, match="Expected `image_budget` to be 0 or more bytes, but got -1"):
        page.write_report([folder], tmp_path / "r.html", image_budget=-1)
    assert read_run(tmp_path / "run") == folder
    assert not list(tmp_path.glob("*.html"))


def test_a_missing_plotly_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(RuntimeError, match=r"pip install 'activebias\[report\]'"):
        page.write_report([small_run(tmp_path / "run")], tmp_path / "r.html")
