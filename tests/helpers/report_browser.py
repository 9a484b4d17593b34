"""A headless Chromium, and what the report's tests do in it."""

import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait


class Page:
    """The browser, with what the tests do in it."""

    def __init__(self, browser, downloads):
        self.browser, self.downloads = browser, downloads

    def resize(self, width, height=900):
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        return self

    def forget(self):
        """Remove what reports have stored in the browser."""
        self.browser.execute_cdp_cmd(
            "Storage.clearDataForOrigin", {"origin": "file://", "storageTypes": "local_storage"}
        )

    def open(self, path, width=1400, height=900):
        self.resize(width, height)
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

    def counts(self, text):
        """Wait until the line above the table begins so: the page waits for the end of typing."""
        return self.until(lambda: self.find("#count").text.startswith(text))

    def press(self, *keys):
        actions = ActionChains(self.browser)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    def rows(self):
        """Return the instances of the table, read at once: the page may draw it anew meanwhile."""
        script = "return [...document.querySelectorAll(arguments[0])].map(row => +row.dataset.instance)"
        return self.js(script, "#instances tbody tr[data-instance]")

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]

    def export(self, button="#export", name="suspects.csv"):
        """Click on the export and return what was downloaded."""
        file = self.downloads / name
        file.unlink(missing_ok=True)
        self.click(button)
        self.until(file.exists)
        return file.read_bytes().decode()

    def point(self, instance):
        """Return where an instance lies in the window, after scrolling to the map."""
        self.js("document.getElementById('map-plot').scrollIntoView({block: 'center'})")
        return self.js(
            """const plot = document.getElementById('map-plot'), columns = Report.main.current().columns;
            const {xaxis, yaxis} = plot._fullLayout;
            const box = plot.querySelector('.main-svg').getBoundingClientRect();
            return [box.left + xaxis._offset + xaxis.d2p(columns.variability[arguments[0]]),
                    box.top + yaxis._offset + yaxis.d2p(columns.confidence[arguments[0]])];""",
            instance,
        )

    def move_to(self, x, y):
        actions = ActionChains(self.browser, duration=30)
        actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
        return actions


def start_browser(downloads):
    """Start Debian's Chromium, or skip with the reason."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        pytest.skip(
            f"the report's page is not tested: there is no {' and no '.join(missing)}; "
            "on Debian `make browser` installs them, as root"
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
    service = webdriver.ChromeService(programs["chromedriver"])
    browser = webdriver.Chrome(options=options, service=service)
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
    )
    # Smooth scrolling would move what is about to be clicked.
    reduced = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", reduced)
    return browser
