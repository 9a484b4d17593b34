"""What a report weighs and how fast it opens: bytes by part, and seconds in a headless Chromium.

    python benchmarks/report.py RUN... [--repeats 5] [--image-budget 10] [--out out/report.json]

Each report is opened in a browser of its own, as often as `--repeats` says. `ready` is from the start of
the navigation until map, table and charts are drawn; `table` one filter and sort of all instances; `pan` one
step over the map, until the script is done and until it is on the screen. A headless browser draws WebGL on
the CPU, so the latter says little about a computer with a graphics card. Needs Debian's chromium and
chromium-driver, and selenium.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from activebias.report.page import plotly_source, write_report
from activebias.runs.folder import read_run

TABLE = """document.getElementById('show').value = 'all';
const start = performance.now();
Report.table.refresh();
return performance.now() - start;"""
PAN = """const steps = 5, done = arguments[0], plot = document.getElementById('map-plot');
plot.scrollIntoView({block: 'center'});
(async () => {
  const [low, high] = plot.layout.xaxis.range;
  let script = 0, drawn = 0;
  for (let step = 1; step <= steps; step += 1) {
    const shift = 0.002 * step, start = performance.now();
    await Plotly.relayout(plot, {'xaxis.range': [low + shift, high + shift]});
    script += performance.now() - start;
    for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
    drawn += performance.now() - start;
  }
  done([script / steps, drawn / steps]);
})();"""


def open_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for name in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "enable-unsafe-swiftshader"):
        options.add_argument(f"--{name}")
    options.add_argument("--window-size=1400,900")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def timings(path):
    """Return the milliseconds of one visit to the report."""
    browser = open_browser()
    try:
        browser.get(path.resolve().as_uri())
        ready = "return performance.getEntriesByName('report-ready')[0]?.startTime"
        found = WebDriverWait(browser, 120, 0.1).until(lambda _: browser.execute_script(ready))
        table = browser.execute_script(TABLE)
        browser.set_script_timeout(300)
        script, drawn = browser.execute_async_script(PAN)
        return {"ready": found, "table": table, "pan, script": script, "pan, drawn": drawn}
    finally:
        browser.quit()


def parts(path):
    """Return the bytes of the file by what they hold."""
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', text, re.DOTALL)[1])
    blobs = dict(re.findall(r'id="blob-(\d+)">([^<]*)<', text))
    run = data["runs"][0]

    def size(*numbers):
        return sum(len(blobs[str(number)]) for number in numbers)

    found = {"all": path.stat().st_size, "plotly.js": len(plotly_source().encode())}
    found["pictures"] = size(*run["images"]["sheets"]) if run["images"] else 0
    found["texts"] = size(*(number for f in run["fields"] for number in (f["texts"], f["codes"]["blob"])))
    found["histories"] = size(run["history"]["blob"])
    found["columns"] = size(*(column["blob"] for column in run["columns"].values()))
    return found


def mean_and_error(values):
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "standard_error": error}


def measure(run, repeats, image_budget):
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = write_report([read_run(run)], Path(folder) / "report.html", image_budget=image_budget)
        seconds = time.perf_counter() - start
        visits = [timings(path) for _ in range(repeats)]
        return {
            "run": Path(run).name,
            "num_instances": read_run(run).info.num_instances,
            "epochs": read_run(run).info.epochs,
            "write_seconds": seconds,
            "bytes": parts(path),
            "milliseconds": {name: mean_and_error([visit[name] for visit in visits]) for name in visits[0]},
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--image-budget", type=float, default=10, help="megabytes")
    parser.add_argument("--out", type=Path, default=Path("out/report.json"))
    arguments = parser.parse_args()
    found = []
    for run in arguments.runs:
        result = measure(run, arguments.repeats, round(arguments.image_budget * 1e6))
        found.append(result)
        sizes = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in result["bytes"].items())
        print(f"{result['run']}: {result['num_instances']:,} instances, {result['epochs']} epochs")
        print(f"  MB: {sizes}; written in {result['write_seconds']:.1f} s")
        for name, value in result["milliseconds"].items():
            mean, error = value["mean"], value["standard_error"]
            print(f"  {name}: {mean:.0f} ± {error:.0f} ms (n = {arguments.repeats})")
    print(f"{os.cpu_count()} CPUs, load of the last five minutes {os.getloadavg()[1]:.1f}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    versions = {"python": sys.version.split()[0], "cpus": os.cpu_count(), "load": os.getloadavg()[1]}
    arguments.out.write_text(json.dumps({"versions": versions, "reports": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
