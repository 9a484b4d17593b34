"""The report in a real browser, on data that means harm, is large, or has gaps."""

import csv
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

import report_runs as runs
from activebias.report.page import write_report
from activebias.report.view import view_run
from activebias.runs.contents import Inputs

HOSTILE = [
    "<script>window.stolen = 1</script>",
    "</script><script>window.stolen = 2</script>",
    "<img src=x onerror='window.stolen = 3'>",
    "\"quoted\", 'and' more\nin two lines",
    "separators \u2028 and \u2029, {{x}} ${1} %{y} &lt; &amp;",
    "<b>bold</b><br><a href='javascript:window.stolen=4'>link</a>",
]


class Listener(BaseHTTPRequestHandler):
    """A server that only notes that it was asked."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_nothing_leaves_the_page(opened):
    """It loads nothing by itself; and the policy stops even what a script would ask for."""
    page, _ = opened
    entries = page.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in entries if not name.startswith(("data:", "blob:"))] == []
    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        refused = page.js(
            """const address = arguments[0];
            new Image().src = address + '/image';
            const script = document.createElement('script'); script.src = address + '/script';
            document.body.append(script);
            return fetch(address + '/fetch').then(() => false, () => true);""",
            address,
        )
        inline = page.js(
            """document.body.insertAdjacentHTML('beforeend', "<img src='data:,' onerror='stolen = 5'>");
            const script = document.createElement('script'); script.textContent = 'window.stolen = 6';
            document.body.append(script);
            return new Promise((done) => setTimeout(() => done(window.stolen ?? null), 300));"""
        )
        server.shutdown()
        thread.join()
        assert refused
        assert server.asked == []
    assert inline is None


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Return a report in which everything that data can name is markup, script or a separator."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("hostile")
    num = 60
    rows = pandas.DataFrame(
        {
            HOSTILE[2]: [HOSTILE[i % 6] for i in range(num)],
            "text": [f"{i}: {HOSTILE[(i + 1) % 6]}" for i in range(num)],
        }
    )
    settings = {
        "num": num,
        "class_names": HOSTILE,
        "kind": "text",
        "title": HOSTILE[1],
        "source": HOSTILE[0],
        "warnings": HOSTILE,
        "notes": HOSTILE,
        "skipped": [{"what": HOSTILE[2], "why": HOSTILE[5]}],
        "curves": {"validation_error": [3.0] * 4, f"{HOSTILE[5]}_error": [2.0] * 4},
        "conflict": np.ones(num, np.int64),
    }
    texts = runs.make_run(folder / "<b>texts<", inputs=Inputs(rows=rows), **settings)
    images = Inputs(images=np.zeros((num, 9, 5, 3), np.uint8), names=[HOSTILE[i % 6] for i in range(num)])
    pictures = runs.make_run(folder / "images", inputs=images, **settings | {"kind": "images"})
    return write_report([texts, pictures], folder / "report.html")


def test_hostile_data_is_text_and_runs_nothing(page, hostile):
    page.open(hostile)
    page.choose("#show", "All instances")
    for run in ("<b>texts<", "images"):
        page.choose("#run", run)
        page.until(lambda run=run: page.js("return Report.main.current().name") == run)
        page.choose("#show", "All instances")
        page.choose("#page-size", "100")
        page.js("document.querySelector('#instances .open').click()")
        page.js("Report.detail.showTip(1, {clientX: 50, clientY: 50})")
        page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        table = page.js("return document.getElementById('instances').textContent")
        assert all(text in table for text in HOSTILE)
        assert len(page.all("#detail .conflict button")) == 5
        everything = page.js("return document.querySelector('main').textContent")
        assert all(text in everything for text in HOSTILE)
        assert page.find("h1").get_property("textContent") == HOSTILE[1]
    assert page.browser.title == HOSTILE[1]
    lines = list(csv.reader(page.export().splitlines(keepends=True)))
    assert len(lines) == 61
    assert {line[1] for line in lines[1:]} == set(HOSTILE)
    legend = page.js(
        "return Array.from(document.querySelectorAll('#curves-plot .legendtext'), (e) => e.textContent)"
    )
    assert any("<b>bold</b>" in text for text in legend)
    assert page.all("main a[href^=javascript], .js-plotly-plot a, main b") == []
    injected = "main script, main img[src='x'], .js-plotly-plot script"
    assert page.all(injected) == []
    time.sleep(0.3)
    assert page.js("return window.stolen ?? null") is None
    assert page.errors() == []


@pytest.mark.parametrize("width", [1400, 400])
def test_long_names_neither_widen_the_page_nor_fill_it(page, tmp_path, width):
    names = ["n" * 400, "m" * 400, " ".join("word" for _ in range(100))]
    images = Inputs(images=np.zeros((60, 8, 8), np.uint8), names=["f" * 400 + f"{i}.png" for i in range(60)])
    settings = {"title": names[0], "source": names[0], "notes": names, "warnings": names}
    settings["conflict"] = np.ones(60, np.int64)
    folder = runs.make_run(tmp_path / "long", num=60, class_names=names, inputs=images, **settings)
    page.open(write_report([folder], tmp_path / "long.html"), width=width, height=800)
    page.js("document.querySelector('#instances .open').click()")
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.js("return document.documentElement.scrollWidth") <= width
    assert page.js("return document.querySelector('#instances tbody tr').offsetHeight") < 110  # four lines
    assert "labelled “" + "n" * 59 + "…”" in page.find("#sentences").text
    assert page.errors() == []


def test_sixty_thousand_points(page, tmp_path):
    num = 60_000
    images = Inputs(images=np.random.default_rng(0).integers(0, 255, (num, 4, 4), dtype=np.uint8))
    folder = runs.make_run(tmp_path / "large", num=num, class_names=list("abcdefghij"), inputs=images)
    path = write_report([folder], tmp_path / "large.html", image_budget=200_000)
    page.open(path)
    assert (
        page.js("return document.getElementById('map-plot').data.reduce((n, t) => n + t.x.length, 0)") == num
    )
    assert "most suspicious of 60,000 instances" in page.find("#budget").text
    page.choose("#show", "All instances")
    page.click("button[data-key=variability]")
    variability = view_run(folder).audit.variability.astype(np.float32)
    np.testing.assert_allclose(variability[page.rows()], np.sort(variability)[::-1][:25])
    assert page.errors() == []


def test_words_in_their_sentence_and_what_was_never_visited(page, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    words = ["Anna", "lives", "in", "New", "York", ".", "Ben", "<b>", "too"]
    sentence = np.array([0] * 6 + [1] * 3)
    number = np.array([*range(6), *range(3)])
    folder = runs.make_run(
        tmp_path / "words",
        num=9,
        class_names=["O", "PER", "LOC"],
        kind="tagging",
        inputs=Inputs(rows=pandas.DataFrame({"word": words})),
        sentence=sentence,
        word=number,
        unseen=2,
        warnings=("The model memorises.",),
    )
    page.open(write_report([folder], tmp_path / "words.html"))
    assert "Take care: The model memorises." in page.find("#warnings").text
    page.choose("#show", "All instances")
    assert page.rows()[-2:] == [7, 8]  # what was never visited stands last
    page.click("button[data-key=score]")
    assert page.rows()[-2:] == [7, 8]
    assert page.js("return document.getElementById('map-plot').data.reduce((n, t) => n + t.x.length, 0)") == 7
    assert "Never visited: 2. Nothing is known about these instances." in page.find("#sentences").text
    page.js("Report.main.choose(4)")
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.find("#detail mark").text == "York"
    assert "Anna lives in New York ." in page.find("#detail .fields").text
    assert page.errors() == []
