"""The report in a real browser: what one sees, clicks, types and exports, and what hostile data does not do."""

import base64
import csv
import json
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

import report_runs as runs
from activebias.report.folder import Inputs
from activebias.report.page import write_report
from activebias.report.view import view_run

pytest.importorskip("plotly", reason="the report's page is not tested: plotly is not installed")
selenium = pytest.importorskip(
    "selenium", reason="the report's page is not tested: selenium is not installed"
)
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

HOSTILE = [
    "<script>window.stolen = 1</script>",
    "</script><script>window.stolen = 2</script>",
    "<img src=x onerror='window.stolen = 3'>",
    "\"quoted\", 'and' more\nin two lines",
    "separators \u2028 and \u2029, {{x}} ${1} %{y} &lt; &amp;",
    "<b>bold</b><br><a href='javascript:window.stolen=4'>link</a>",
]


class Page:
    """The browser, with what the tests do in it."""

    def __init__(self, browser, downloads):
        self.browser, self.downloads = browser, downloads

    def open(self, path, width=1400, height=900):
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        self.browser.get_log("browser")
        self.browser.get(path.as_uri())
        self.until(lambda: self.js("return document.documentElement.dataset.ready"), seconds=60)
        return self

    def start_again(self):
        """Bring the open report back to how it opened, faster than opening it."""
        self.browser.get_log("browser")
        self.js(
            """scrollTo(0, 0);
            document.activeElement.blur();
            Report.main.choose(null);
            delete document.documentElement.dataset.theme;
            document.getElementById('map-only').checked = false;
            const choice = document.getElementById('run');
            choice.value = '0';
            return Report.main.showRun(0);"""
        )
        return self

    def click(self, selector):
        """Click on what may be under the head of the page, as one does: by scrolling a little."""
        element = self.find(selector)
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def js(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def until(self, condition, seconds=10):
        return WebDriverWait(self.browser, seconds, 0.05).until(lambda _: condition())

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def choose(self, selector, text):
        Select(self.find(selector)).select_by_visible_text(text)

    def type(self, selector, text):
        self.find(selector).clear()
        self.find(selector).send_keys(text)
        time.sleep(0.3)  # the page waits for the end of typing

    def press(self, *keys):
        actions = ActionChains(self.browser)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    def rows(self):
        return [
            int(row.get_attribute("data-instance")) for row in self.all("#instances tbody tr[data-instance]")
        ]

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]

    def export(self):
        """Click on the export and return what was downloaded."""
        file = self.downloads / "suspects.csv"
        file.unlink(missing_ok=True)
        self.click("#export")
        self.until(file.exists)
        return file.read_bytes().decode()

    def point(self, instance):
        """Return where an instance lies in the window, after scrolling to the map."""
        self.js("document.getElementById('map-plot').scrollIntoView({block: 'center'})")
        return self.js(
            """const plot = document.getElementById('map-plot'), columns = Report.main.current().columns;
            const {xaxis, yaxis} = plot._fullLayout, box = plot.querySelector('.main-svg').getBoundingClientRect();
            return [box.left + xaxis._offset + xaxis.d2p(columns.variability[arguments[0]]),
                    box.top + yaxis._offset + yaxis.d2p(columns.confidence[arguments[0]])];""",
            instance,
        )

    def move_to(self, x, y):
        actions = ActionChains(self.browser, duration=30)
        actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
        return actions


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        pytest.skip(
            f"the report's page is not tested: there is no {' and no '.join(missing)}; `make browser` installs "
            "them on Debian, as root"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    # WebGL in software, and no sandbox: in a container there is neither a GPU nor the right to make one.
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--enable-unsafe-swiftshader",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    downloads = tmp_path_factory.mktemp("downloads")
    service = webdriver.ChromeService(programs["chromedriver"])
    browser = webdriver.Chrome(options=options, service=service)
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
    )
    # Smooth scrolling would move what is about to be clicked.
    reduced = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", reduced)
    yield Page(browser, downloads)
    browser.quit()


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return the report of two trainings on digits, and the view of the first."""
    folder = tmp_path_factory.mktemp("digits")
    first, _ = runs.train_digits(folder / "wtc", epochs=12, burn_in=3)
    second, _ = runs.train_digits(folder / "scan", epochs=12, burn_in=3, method="scan")
    return write_report([first, second], folder / "report.html"), view_run(first)


@pytest.fixture
def opened(page, digits):
    same = page.browser.current_url == digits[0].as_uri() and page.js("return innerWidth") == 1400
    return (page.start_again() if same else page.open(digits[0])), digits[1]


def worst_first(view, chosen):
    """Return the instances that are chosen, by score."""
    score = view.audit.score.astype(np.float32)
    return sorted(np.flatnonzero(chosen).tolist(), key=lambda i: (-score[i], i))


def test_it_opens_without_an_error_and_says_what_was_found(opened):
    page, view = opened
    assert page.errors() == []
    text = page.find("main").text
    assert f"{view.suspected.sum():,} of them" in text
    assert "scikit-learn digits · 1,437 instances of 10 classes · method wtc" in text
    assert len(page.all("#map-plot canvas")) > 0  # WebGL draws the map
    assert page.rows() == worst_first(view, view.suspected)[:25]
    alternatives = [image.get_attribute("alt") for image in page.all("#instances img")]
    first = page.rows()[0]
    assert alternatives[0].endswith(f"labelled {view.instances.label[first]}")
    assert len(alternatives) == 25


def test_the_picture_of_a_row_is_the_instances(opened):
    """Decode what the page shows for some instances and compare it pixel by pixel."""
    page, view = opened
    for instance in (0, 700, 1436):
        shown = page.js(
            """const run = Report.main.current(), picture = new Image(), address = run.picture(arguments[0]);
            picture.src = address;
            return picture.decode().then(() => {
              const canvas = document.createElement('canvas'); canvas.width = canvas.height = 8;
              const context = canvas.getContext('2d'); context.drawImage(picture, 0, 0);
              return Array.from(context.getImageData(0, 0, 8, 8).data).filter((_, i) => i % 4 === 0);
            });""",
            instance,
        )
        expected = (view.images[instance] * (255 / 16)).astype(np.uint8).ravel()
        np.testing.assert_allclose(shown, expected, atol=1)


def test_filters_and_sorting(opened):
    page, view = opened
    label, believed, score = view.instances.label, view.instances.believed, view.audit.score
    page.choose("#label", "3")
    assert page.rows() == worst_first(view, view.suspected & (label == 3))[:25]
    page.choose("#show", "All instances")
    page.choose("#believed", "3")
    both = worst_first(view, (label == 3) & (believed == 3))
    assert page.rows() == both[:25]
    assert page.find("#count").text == f"{len(both):,} instances shown, of 1,437 instances."
    page.click("#filters button[type=reset]")
    page.until(lambda: page.rows() == worst_first(view, view.suspected)[:25])
    page.type("#least", "0.95")
    assert page.find("#count").text.startswith(f"{(view.suspected & (score >= 0.95)).sum():,} suspects")
    page.type("#least", "")
    page.type("#search", "DIGIT_00")
    page.choose("#show", "All instances")
    assert page.find("#count").text.startswith("100 instances")
    page.type("#search", "nothing is called so")
    assert page.find("#instances tbody").text == "No instance fits these filters."


def test_sorting_by_a_column_head(opened):
    page, view = opened
    members = np.flatnonzero(view.suspected)
    weight = view.instances.weight
    page.click("button[data-key=weight]")
    heads = {
        head.text.split()[0]: head.get_attribute("aria-sort") for head in page.all("#instances thead th")
    }
    assert heads["Weight"] == "descending"
    assert heads["Score"] == "none"
    assert [weight[i] for i in page.rows()] == sorted(weight[members], reverse=True)[:25]
    page.click("button[data-key=weight]")
    assert [weight[i] for i in page.rows()] == sorted(weight[members])[:25]
    page.click("#page-on")
    assert [weight[i] for i in page.rows()] == sorted(weight[members])[25:50]
    assert page.find("#page").text.startswith("Page 2 of")


def test_the_export_holds_exactly_the_filtered_rows_in_order(opened):
    page, view = opened
    page.choose("#believed", "8")
    page.click("button[data-key=label_prob]")
    chosen = np.flatnonzero(view.suspected & (view.instances.believed == 8))
    prob, score = view.instances.label_prob, view.audit.score.astype(np.float32)
    expected = sorted(chosen.tolist(), key=lambda i: (prob[i], -score[i], i))
    lines = list(csv.DictReader(page.export().splitlines()))
    assert [int(line["index"]) for line in lines] == expected
    assert len(lines) > 3
    for line, i in zip(lines, expected, strict=True):
        assert (line["label"], line["believed"]) == (str(view.instances.label[i]), "8")
        assert float(line["score"]) == pytest.approx(view.audit.score[i], rel=1e-6)
        assert float(line["weight"]) == pytest.approx(view.instances.weight[i], rel=1e-6)
        assert line["file"] == f"digit_{view.instances.position[i]:04d}.png"


def test_pointing_at_and_clicking_on_the_map(opened):
    page, view = opened
    # The lowest point on the map lies free.
    instance = int(np.argmax(np.where(view.suspected, view.audit.variability, 0)))
    x, y = page.point(instance)
    page.move_to(x - 40, y - 40).perform()
    page.move_to(x, y).perform()
    page.until(lambda: page.find("#tip").is_displayed())
    assert f"digit_{instance:04d}.png" in page.find("#tip").text
    assert page.find("#tip img").is_displayed()
    page.move_to(x, y).click().perform()
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.find("#detail-heading").text == f"Instance {view.instances.position[instance]}"
    detail = page.find("#detail").text
    label, believed = view.instances.label[instance], view.instances.believed[instance]
    assert f"The label says {label}; the model believes {believed}" in detail
    drawn = page.js("""const y = document.querySelector('#detail .chart').data[0].y; return Array.from(y);""")
    np.testing.assert_allclose(drawn, view.values[instance][view.visited[instance]], atol=0.5 / 254 + 1e-6)
    assert page.js("return document.querySelector('#map-plot').data[5].customdata") == [instance]
    page.press(Keys.ESCAPE)
    assert not page.find("#detail-body").is_displayed()
    assert page.errors() == []


def test_a_box_drawn_on_the_map_fills_the_table(opened):
    page, view = opened
    page.point(0)
    page.js("Plotly.relayout('map-plot', {dragmode: 'select'})")
    area = page.js(
        """const plot = document.getElementById('map-plot'), {xaxis, yaxis} = plot._fullLayout;
        const box = plot.querySelector('.main-svg').getBoundingClientRect();
        const left = box.left + xaxis._offset, top = box.top + yaxis._offset;
        return [left + xaxis.d2p(0), top + yaxis.d2p(0.3), left + xaxis._length - 5, top + yaxis._length - 5];"""
    )
    actions = page.move_to(area[0] - 8, area[1])
    actions.click_and_hold()
    actions.w3c_actions.pointer_action.move_to_location(round(area[2]), round(area[3]))
    actions.release().perform()
    page.until(lambda: page.find("#map-clear").is_displayed())
    number = int(page.find("#count").text.split()[0].replace(",", ""))
    assert number == pytest.approx((view.audit.confidence < 0.3).sum(), abs=3)  # a pixel's width
    page.click("#map-clear")
    assert page.find("#count").text.startswith(f"{view.suspected.sum():,} suspects")


def test_only_what_the_table_shows(opened):
    page, view = opened
    drawn = "return document.getElementById('map-plot').data.slice(0, 5).reduce((n, t) => n + t.x.length, 0)"
    assert page.js(drawn) == 1437
    page.click("#map-only")
    page.until(lambda: page.js(drawn) == view.suspected.sum())
    page.choose("#label", "3")
    page.until(lambda: page.js(drawn) == (view.suspected & (view.instances.label == 3)).sum())


def test_by_keyboard_alone(page, digits):
    view = digits[1]
    page.open(digits[0])
    page.press(Keys.TAB)
    assert page.js("return document.activeElement.textContent") == "Skip to the report"
    page.press(Keys.ENTER)
    assert page.js("return document.activeElement.id") == "main"
    page.js("document.querySelector('button[data-key=position]').focus()")
    page.press(Keys.ENTER)
    expected = np.flatnonzero(view.suspected).tolist()
    assert page.rows() == expected[:25]
    assert page.js("return document.activeElement.dataset.key") == "position"  # the focus stays
    for _ in range(9):  # the heads of the other columns, and then the first row
        page.press(Keys.TAB)
    page.press(Keys.ENTER)
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.find("#detail-heading").text == f"Instance {expected[0]}"
    outline = page.js("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.press(Keys.TAB, Keys.ENTER)
    assert page.find("#detail-heading").text == f"Instance {expected[1]}"
    assert page.find("#instances tr[aria-current=true]").get_attribute("data-instance") == str(expected[1])


def test_semantics(opened):
    page, _ = opened
    for landmark in ("header", "main", "nav[aria-label]", "aside[aria-label]", "footer", "h1"):
        assert page.all(landmark), landmark
    unnamed = page.js(
        """return Array.from(document.querySelectorAll('button, select, input, img, [role=img]')).filter(e =>
        e.offsetParent && !(e.getAttribute('aria-label') || e.labels?.length || e.alt || e.textContent.trim()))
        .map(e => e.outerHTML.slice(0, 100))"""
    )
    assert unnamed == []
    assert all(head.get_attribute("scope") for head in page.all("#instances th"))


def test_light_and_dark(opened):
    page, _ = opened
    ground = "return getComputedStyle(document.body).backgroundColor"
    ink = "return document.getElementById('map-plot')._fullLayout.font.color"
    light = page.js(ground), page.js(ink)
    button = page.find("#theme")
    assert button.get_attribute("aria-pressed") == "false"
    page.click("#theme")
    page.until(lambda: page.js(ink) != light[1])
    assert page.js(ground) != light[0]
    assert button.get_attribute("aria-pressed") == "true"
    pdf = base64.b64decode(page.browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    assert page.js(ground) != light[0]  # on paper it was light, here it is dark again
    page.click("#theme")
    assert page.js(ground) == light[0]


def test_several_runs_are_compared(opened):
    page, view = opened
    table = page.find("#comparison-table").text
    assert "wtc" in table
    assert "scan" in table
    curves = page.js("return document.getElementById('comparison-plot').data.map(t => Array.from(t.y))")
    assert curves[0] == pytest.approx(list(view.info.curves["validation_error"]))
    page.choose("#run", "scan")
    page.until(lambda: "method scan" in page.find("#subtitle").text)
    page.until(lambda: page.find("#weights-note").text.startswith("Every instance has the weight 1.00"))
    assert page.errors() == []


def test_a_narrow_window(page, digits):
    page.open(digits[0], width=400, height=800)
    assert page.js("return document.documentElement.scrollWidth") <= 400
    page.js("document.querySelector('#instances .open').scrollIntoView({block: 'start'})")
    page.find("#instances .open").send_keys(Keys.ENTER)
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.js("return document.getElementById('detail').getBoundingClientRect().bottom") <= 801


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
            """document.body.insertAdjacentHTML('beforeend', "<img src='data:,' onerror='window.stolen = 5'>");
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
    assert json.dumps(page.errors()) == "[]"


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
    assert "2 of them were never visited" in page.find("#sentences").text
    page.js("Report.main.choose(4)")
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.find("#detail mark").text == "York"
    assert "Anna lives in New York ." in page.find("#detail .fields").text
    assert page.errors() == []
