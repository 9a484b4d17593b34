"""The report in a real browser: what one sees, clicks, types and exports."""

import base64
import csv

import numpy as np
import pytest

import report_runs as runs
from activebias.report.page import write_report
from activebias.runs.contents import Inputs

ESCAPE, TAB, ENTER = "\ue00c", "\ue004", "\ue007"  # as WebDriver names the keys


def worst_first(view, chosen):
    """Return the instances that are chosen, by score."""
    score = view.audit.score.astype(np.float32)
    return sorted(np.flatnonzero(chosen).tolist(), key=lambda i: (-score[i], i))


def loneliest_suspect(view):
    """Return the suspect that is farthest from any other point of the map, so that one can point at it."""
    places = np.stack([view.audit.variability / view.audit.variability.max(), view.audit.confidence], axis=1)
    suspects = np.flatnonzero(view.suspected)
    distances = np.linalg.norm(places[suspects, None] - places[None], axis=2)
    distances[np.arange(len(suspects)), suspects] = np.inf
    return int(suspects[distances.min(1).argmax()])


def test_it_opens_without_an_error_and_says_what_was_found(opened):
    page, view = opened
    assert page.errors() == []
    text = page.find("main").text
    assert f"{view.suspected.sum():,} of 1,437 images" in text
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
            """const run = Report.main.current(), picture = new Image();
            return run.picture(arguments[0]).then((address) => {
              picture.src = address;
              return picture.decode();
            }).then(() => {
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
    page.click("button[type=reset]")
    page.until(lambda: page.rows() == worst_first(view, view.suspected)[:25])
    page.type("#least", "0.95")
    page.counts(f"{(view.suspected & (score >= 0.95)).sum():,} suspects")
    page.type("#least", "")
    page.type("#search", "DIGIT_00")
    page.choose("#show", "All instances")
    page.counts("100 instances")
    page.type("#search", "nothing is called so")
    page.counts("0 instances")
    assert page.find("#instances tbody").text == "No instance fits these filters."


def test_sorting_by_a_column_head(opened):
    page, view = opened
    members = np.flatnonzero(view.suspected)
    values = view.audit.variability.astype(np.float32)
    page.click("button[data-key=variability]")
    heads = {
        head.text.split()[0]: head.get_attribute("aria-sort") for head in page.all("#instances thead th")
    }
    assert heads["Variability"] == "descending"
    assert heads["Score"] == "none"
    assert [values[i] for i in page.rows()] == sorted(values[members], reverse=True)[:25]
    page.click("button[data-key=variability]")
    assert [values[i] for i in page.rows()] == sorted(values[members])[:25]
    page.click("#page-on")
    assert [values[i] for i in page.rows()] == sorted(values[members])[25:50]
    assert page.find("#page").text.startswith("Page 2 of")


def test_the_export_holds_exactly_the_filtered_rows_in_order(opened):
    page, view = opened
    page.choose("#believed", "8")
    page.click("button[data-key=label_prob]")
    chosen = np.flatnonzero(view.suspected & (view.instances.believed == 8))
    prob, score = view.instances.label_prob, view.audit.score.astype(np.float32)
    expected = sorted(chosen.tolist(), key=lambda i: (prob[i], -score[i], i))
    lines = list(csv.DictReader(page.export().splitlines()))
    assert next(iter(lines[0])) == "file"
    assert [int(line["index"]) for line in lines] == expected
    assert len(lines) > 3
    for line, i in zip(lines, expected, strict=True):
        assert (line["label"], line["believed"]) == (str(view.instances.label[i]), "8")
        assert float(line["score"]) == pytest.approx(view.audit.score[i], rel=1e-6)
        assert float(line["weight"]) == pytest.approx(view.instances.weight[i], rel=1e-6)
        assert line["file"] == f"digit_{view.instances.position[i]:04d}.png"


def test_pointing_at_and_clicking_on_the_map(opened):
    page, view = opened
    instance = loneliest_suspect(view)
    x, y = page.point(instance)

    def tip_shows():  # the pointer stays near the point: the tip comes, and does not go again
        page.move_to(x - 2, y - 2).perform()
        page.move_to(x, y).perform()
        return page.find("#tip").is_displayed()

    page.until(tip_shows)
    assert f"digit_{instance:04d}.png" in page.find("#tip").text
    assert page.find("#tip img").is_displayed()
    page.move_to(x, y).click().perform()
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.find("#detail-heading").text == f"Image {view.instances.position[instance]}"
    detail = page.find("#detail").text
    label, believed = view.instances.label[instance], view.instances.believed[instance]
    assert f"The label says {label}; the model believes {believed}" in detail
    drawn = page.js("""const y = document.querySelector('#detail .chart').data[0].y; return Array.from(y);""")
    np.testing.assert_allclose(drawn, view.values[instance][view.visited[instance]], atol=0.5 / 254 + 1e-6)
    assert page.js("return document.querySelector('#map-plot').data[5].customdata") == [instance]
    page.press(ESCAPE)
    assert not page.find("#detail-body").is_displayed()
    assert page.errors() == []


def test_a_click_right_after_a_movement_is_not_lost(opened):
    """Plotly looks up the point under the pointer up to 50 ms late: here, while the button is pressed."""
    page, view = opened
    instance = loneliest_suspect(view)
    x, y = page.point(instance)
    page.js(
        """const plot = document.querySelector('#map-plot .nsewdrag'), [clientX, clientY] = arguments;
        const send = (kind) => plot.dispatchEvent(new MouseEvent(kind, {clientX, clientY, bubbles: true}));
        send('mousemove');
        send('mousemove');
        send('mousedown');
        return new Promise((resolve) => setTimeout(() => resolve(send('mouseup')), 75));""",
        x,
        y,
    )
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.find("#detail-heading").text == f"Image {view.instances.position[instance]}"


def test_a_box_drawn_on_the_map_fills_the_table(opened):
    page, view = opened
    page.point(0)
    page.js("Plotly.relayout('map-plot', {dragmode: 'select'})")
    area = page.js(
        """const plot = document.getElementById('map-plot'), {xaxis, yaxis} = plot._fullLayout;
        const box = plot.querySelector('.main-svg').getBoundingClientRect();
        const left = box.left + xaxis._offset, top = box.top + yaxis._offset;
        return [left + xaxis.d2p(0), top + yaxis.d2p(0.3),
                left + xaxis._length - 5, top + yaxis._length - 5];"""
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


def test_the_same_input_with_different_labels(page, tmp_path):
    """Instances 0 and 1 contradict each other, and so does 7 with something that is only validated on."""
    conflict = np.array([1, 1, 0, 0, 0, 0, 0, 2, 0])
    images = Inputs(images=np.zeros((9, 8, 8), np.uint8), names=[f"{k}.png" for k in range(9)])
    plain, conflicting = (
        runs.make_run(tmp_path / name, num=9, class_names=["cat", "dog", "cow"], inputs=images, **more)
        for name, more in (("plain", {}), ("conflicting", {"conflict": conflict}))
    )
    page.open(write_report([plain, conflicting], tmp_path / "report.html"))
    choices = "return Array.from(document.getElementById('show').options, (option) => option.text)"
    usual = ["Suspects", "Suspects, undecided", "Decided", "All instances"]
    assert page.js(choices) == usual
    page.choose("#run", "conflicting")
    page.until(lambda: page.js(choices) == [*usual, "Conflicts"])
    assert "conflicts\n3\nsame input, different label" in page.find("#figures").text
    assert "Compare the 3 instances" in page.find("#advice").text
    page.choose("#show", "Conflicts")
    assert sorted(page.rows()) == [0, 1, 7]
    assert page.find("#count").text == "3 instances shown, of 9 instances."
    labels = {row: page.find(f"tr[data-instance='{row}'] .class-name").text for row in (0, 1, 7)}
    assert labels == {0: "cat\nalso dog", 1: "dog\nalso cat", 7: "dog"}
    page.js("Report.main.choose(0)")
    page.click("#detail .conflict button")
    assert page.find("#detail-heading").text == "Image 1"
    assert page.find("#detail .conflict button").text == "Image 0: cat"
    page.js("Report.main.choose(7)")
    assert "another label elsewhere: see conflicts.csv" in page.find("#detail").text
    lines = list(csv.DictReader(page.export().splitlines()))
    assert {line["index"]: line["conflict"] for line in lines} == {"0": "1", "1": "1", "7": "2"}
    page.js("Report.main.choose(2)")
    assert "same input" not in page.find("#detail-body").text
    page.choose("#run", "plain")
    page.until(lambda: page.js(choices) == usual)
    assert page.errors() == []


@pytest.mark.parametrize("kind", ["table", "text"])
def test_a_row_is_named_by_its_identifier(page, tmp_path, kind):
    """The owner of a table finds the row by a column of it that was not trained on, also by a search."""
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame({"age": [f"{20 + k} years" for k in range(30)]})
    rows["size"] = [float(k) if k != 17 else None for k in range(30)]
    identifiers = pd.DataFrame({"customer": [f"K-{k:03d}" for k in range(30)]})
    run = runs.make_run(
        tmp_path / "run",
        num=30,
        class_names=["a", "b"],
        inputs=Inputs(rows=rows, identifiers=identifiers),
        kind=kind,
    )
    page.open(write_report([run], tmp_path / "report.html"))
    page.choose("#show", "All instances")
    page.type("#search", "k-017")
    page.counts("1 instances shown")
    assert page.rows() == [17]
    page.click("#instances tbody .open")
    terms = page.find("#detail-body .fields").text.split("\n")
    assert terms == ["customer (not trained on)", "K-017", "age", "37 years", "size", "–"]
    shown = "Row 17: customer=K-017, age=37 years, size=–" if kind == "table" else "37 years"
    assert page.find("#instances tbody .open").text == shown
    head, line = csv.reader(page.js("return Report.table.csv()").splitlines())
    assert (head[:3], head[-2:]) == (["row", "customer", "label"], ["age", "size"])
    assert (line[:2], line[-2:]) == (["17", "K-017"], ["37 years", ""])


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
    page.press(TAB)
    assert page.js("return document.activeElement.textContent") == "Skip to the report"
    page.press(ENTER)
    assert page.js("return document.activeElement.id") == "main"
    page.js("document.querySelector('button[data-key=position]').focus()")
    page.press(ENTER)
    expected = np.flatnonzero(view.suspected).tolist()
    assert page.rows() == expected[:25]
    assert page.js("return document.activeElement.dataset.key") == "position"  # the focus stays
    for _ in range(7):  # the heads of the other columns, and then the first row
        page.press(TAB)
    page.press(ENTER)
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.find("#detail-heading").text == f"Image {expected[0]}"
    outline = page.js("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.press(TAB, ENTER)
    assert page.find("#detail-heading").text == f"Image {expected[1]}"
    assert page.find("#instances tr[aria-current=true]").get_attribute("data-instance") == str(expected[1])


def test_semantics(opened):
    page, _ = opened
    for landmark in ("header", "main", "nav[aria-label]", "aside[aria-label]", "footer", "h1"):
        assert page.all(landmark), landmark
    unnamed = page.js(
        """return Array.from(document.querySelectorAll('button, select, input, img, [role=img]')).filter(e =>
        e.offsetParent && !(e.ariaLabel || e.labels?.length || e.alt || e.textContent.trim()))
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
    page.until(lambda: page.js(ground) != light[0])  # on paper it was light, here it is dark again
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
    page.find("#instances .open").send_keys(ENTER)
    page.until(lambda: page.find("#detail-body").is_displayed())
    assert page.js("return document.getElementById('detail').getBoundingClientRect().bottom") <= 801
