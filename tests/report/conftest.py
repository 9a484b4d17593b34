"""One browser for all tests of the report, and one training on digits."""

import pytest

import report_runs as runs


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """Return the browser, or skip with the reason."""
    for package in ("plotly", "selenium"):
        pytest.importorskip(package, reason=f"the report's page is not tested: {package} is not installed")
    from report_browser import Page, start_browser

    downloads = tmp_path_factory.mktemp("downloads")
    browser = start_browser(downloads)
    yield Page(browser, downloads)
    browser.quit()


@pytest.fixture(scope="session")
def trained_digits(tmp_path_factory):
    """Return the run folder of a training on digits, and which of its labels were flipped."""
    return runs.train_digits(tmp_path_factory.mktemp("digits") / "wtc", epochs=20, burn_in=5)


@pytest.fixture(scope="session")
def digits(trained_digits):
    """Return the report of two trainings on digits, and the view of the first."""
    from activebias.report.page import write_report
    from activebias.report.view import view_run

    first, _ = trained_digits
    second, _ = runs.train_digits(first.path.parent / "scan", epochs=20, burn_in=5, method="scan")
    return write_report([first, second], first.path.parent / "report.html"), view_run(first)


@pytest.fixture
def opened(page, digits):
    """Return the report of digits as it opens, and its view."""
    same = page.browser.current_url == digits[0].as_uri() and page.js("return innerWidth") == 1400
    return (page.start_again() if same else page.open(digits[0])), digits[1]
