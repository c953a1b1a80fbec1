"""Uses the pages of runs in chromium: serve.py BROWSER SCONCE FOLDER. Records are in FOLDER's state."""

import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

from checks import check, failed
from pages import Browser, changes

HERE = os.path.dirname(os.path.abspath(__file__))


class Served:
    """A `sconce serve` under way."""

    def __init__(self, sconce, *flags):
        self.process = subprocess.Popen([sconce, "serve", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.link = self.process.stdout.readline().strip()
        self.port, self.token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=([\w-]{32})", self.link).groups()
        self.port = int(self.port)

    def get(self, path, token=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(headers.pop("method", "GET"), path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())

    def raw(self, sent, patience=8):
        """What is answered to these bytes; nothing where the connection is only closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as connection:
            try:
                connection.sendall(sent)
                return connection.recv(64).decode(errors="replace").split("\r\n")[0]
            except ConnectionError:
                return ""

    def end(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(10)


def doors(served):
    for path in ("/api/runs", "/api/live", "/metrics", "/api/runs/x"):
        check(f"{path} needs the token", served.get(path)[0] == 401 and served.get(path, "x" * 32)[0] == 401)
    status, body, headers = served.get("/")
    check("the page has no token in it", status == 200 and served.token not in body)
    check("no other page may ask", not any(name.lower().startswith("access-control") for name in headers))
    check("its policy is strict", "default-src 'none'" in headers["Content-Security-Policy"] and "unsafe" not in headers["Content-Security-Policy"])
    check("another name is refused", served.get("/api/runs", served.token, Host=f"evil.example:{served.port}")[0] == 421)
    check("other methods are refused", served.get("/api/runs", served.token, method="POST")[0] == 405)
    check("a head has no body", served.get("/", method="HEAD")[1] == "")
    for path in ("/../../etc/passwd", "/api/runs/..%2f..%2fetc", "/api/runs/%2e%2e/series", "/api/runs/starved/series?points=99999999999999999999&from=-1", "/api/runs//", "/x"):
        check(f"{path} is not there", served.get(path, served.token)[0] == 404, served.get(path, served.token)[0])
    run = "starved-20261121-0010-0001"
    for query in ("points=0", "points=4096&from=18446744073709551615&to=0", "from=5&to=5", "to=18446744073709551615&points=9999999", "from=100&to=101&points=4096"):
        status, body, _ = served.get(f"/api/runs/{run}/series?{query}", served.token)
        check(f"series with {query}", status == 200 and json.loads(body)["plots"] is not None, status)
    for sent in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2000, b"GET /" + b"a" * 20000, b"\0" * 100,
                 b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", b"GET http://x/ HTTP/1.1\r\nHost: a\r\n\r\n"):
        answer = served.raw(sent)
        check(f"{sent[:24]!r} is refused", answer.startswith("HTTP/1.1 4") or answer == "", answer)
    slow = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(80)]
    for connection in slow:
        try:
            connection.sendall(b"GET / HT")
        except OSError:
            pass
    busy = served.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    check("more than there is room for are turned away", busy.startswith("HTTP/1.1 503"), busy)
    time.sleep(6)
    check("who does not go on asking is let go", served.get("/")[0] == 200)
    for connection in slow:
        connection.close()


def grow(folder):
    """A run that goes on."""
    return subprocess.Popen([sys.executable, f"{HERE}/records.py", folder, "--going"])


def picture(browser, name):
    if pictures := os.environ.get("PICTURES"):
        browser.tell("new Promise(done => setTimeout(done, 150))")
        data = browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(f"{pictures}/{name}.png", "wb") as file:
            file.write(base64.b64decode(data))


def visit(browser, url, width=1200, scheme="light"):
    browser.problems, browser.asked_for = [], []
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Page.navigate", url=url)


READY = "document.querySelectorAll('.plots[data-ready] canvas').length > 5"
SAID = "document.querySelector('.bar output').textContent"
DRAWN = "(c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size)(document.querySelectorAll('.plot canvas')[1])"


def list_of_runs(browser, served):
    visit(browser, served.link)
    check("the runs are listed", browser.until("document.querySelectorAll('#runs tbody tr').length === 5"), browser.tell("document.body.textContent"))
    check("the token leaves the address", browser.tell("!location.href.includes('token')"), browser.tell("location.href"))
    check("what cannot be read is counted", browser.tell("document.body.textContent.includes('1 cannot be read')"))
    picture(browser, "runs")
    before = browser.tell("document.querySelector('#runs tbody').textContent")
    check("the list keeps up", browser.until(f"document.querySelector('#runs tbody').textContent !== {json.dumps(before)}"))
    browser.tell("document.querySelector('input[type=search]').focus()")
    for letter in "starv":
        browser.key(letter, letter)
    check("the filter filters", browser.until("document.querySelectorAll('#runs tbody tr').length === 1"))
    browser.click("#runs a")
    check("a click opens a run", browser.until(READY + " && document.querySelector('h1').textContent.startsWith('starved')"))


def one_run(browser):
    colours = browser.tell(DRAWN)
    check("its plots are drawn", colours > 8, colours)
    check("hostile names are text", browser.tell("!document.querySelector('main script, main img') && document.body.textContent.includes('/home/ada/<b>digits</b>')"))
    check("plots have words", browser.tell("[...document.querySelectorAll('.plot canvas')].every(one => one.getAttribute('aria-label').includes('mean'))"))
    check("phases add up", browser.tell("document.querySelector('.phase .stack').getAttribute('aria-label').startsWith('data 45 %')"), browser.tell("document.querySelector('.phase .stack').getAttribute('aria-label')"))
    picture(browser, "run")
    canvas = ".plot:nth-of-type(2) canvas"
    changes(browser, "dragging zooms", SAID, lambda: browser.drag(canvas, 150))
    label = f"document.querySelector('{canvas}').getAttribute('aria-label')"
    check("figures follow", browser.until(f"{label}.includes(document.querySelector('.bar output').textContent.split(' to ')[0])"))
    browser.tell(f"document.querySelector('{canvas}').focus()")
    changes(browser, "a key zooms", SAID, lambda: browser.key("+", "+"))
    changes(browser, "an arrow moves", SAID, lambda: browser.key("ArrowRight"))
    picture(browser, "zoomed")
    changes(browser, "a button shows all", SAID, lambda: browser.click(".bar button"))
    x, y, _ = browser.place(canvas)
    before = browser.tell("document.querySelector('.plots').textContent")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - 60, y=y)
    check("the mouse reads a moment", browser.until(f"document.querySelector('.plots').textContent !== {json.dumps(before)}"))
    browser.tell("document.querySelector('.plot summary').focus()")
    browser.key("Enter", "\r")
    check("there is a table behind a plot", browser.until("document.querySelectorAll('.plot table tbody tr').length > 10"))


def compared(browser, served):
    visit(browser, served.link)
    browser.until("document.querySelectorAll('#runs tbody tr').length === 5")
    for run in ("starved-20261121-0010-0001", "mended-20261121-0020-0002"):
        browser.click(f"input[data-run='{run}']")
    check("two can be compared", browser.until("!document.querySelector('.bar button').disabled"))
    browser.click(".bar button")
    check("they are beside each other", browser.until(READY + " && document.querySelectorAll('pre').length === 2"))
    check("their steps are told", browser.tell("document.querySelector('main table').textContent.includes('Of a step, data')"), browser.tell("document.querySelector('main table').textContent"))
    check("what changed is told", browser.tell("/B's steps are .* shorter/.test(document.querySelector('#differences').textContent)"), browser.tell("document.querySelector('#differences').textContent"))
    check("both are in one plot", browser.tell("[...document.querySelectorAll('.plot canvas')].some(one => /A used .* B used /.test(one.getAttribute('aria-label')))"))
    changes(browser, "they zoom together", SAID, lambda: browser.drag(".plot:nth-of-type(3) canvas", 100))
    changes(browser, "and back", SAID, lambda: browser.click(".bar button"))
    picture(browser, "compare")


def live(browser, served):
    visit(browser, served.link)
    browser.until("document.querySelectorAll('#runs tbody tr').length === 5")
    browser.tell("location.hash = '#/run/going-20261121-0100-0006'")
    check("a run that goes on", browser.until("document.querySelectorAll('.plots[data-ready] canvas').length > 3"))
    for what in ("document.querySelector('#status').textContent", "document.querySelector('.plot canvas').getAttribute('aria-label')", "document.querySelector('pre').textContent"):
        before = browser.tell(what)
        check(f"it keeps up: {what[24:40]}", browser.until(f"({what}) !== {json.dumps(before)}"), before)


def widths(browser, served):
    for name, path in (("runs", "#/"), ("run", "#/run/ranks-20261121-0030-0003"), ("compare", "#/compare/starved-20261121-0010-0001/mended-20261121-0020-0002")):
        visit(browser, "about:blank", width=390, scheme="dark")
        visit(browser, served.link, width=390, scheme="dark")
        browser.until("document.querySelectorAll('#runs tbody tr').length === 5")
        browser.tell(f"location.hash = '{path}'")
        browser.until(READY if name != "runs" else "true")
        check(f"{name}: a phone shows all of its width", browser.tell("document.documentElement.scrollWidth") <= 390, browser.tell("document.documentElement.scrollWidth"))
        check(f"{name}: it is dark in the dark", browser.tell("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)")
        picture(browser, f"{name}-phone")


def problems(browser, name, served=None):
    check(f"{name}: nothing fails in it", not browser.problems, browser.problems)
    if served:
        others = [url for url in browser.asked_for if not url.startswith(f"http://127.0.0.1:{served.port}/") and url != "about:blank"]
        check(f"{name}: nobody else is asked", not others, others)
        check(f"{name}: no address has the token", not any(served.token in url.split("#")[0] for url in browser.asked_for))


def in_a_file(browser, sconce, folder):
    page = f"{folder}/run.html"
    subprocess.run([sconce, "report", "ranks", "--html", page], check=True, stderr=subprocess.DEVNULL)
    browser.problems, browser.asked_for = [], []
    browser.open(page)
    check("a file opens", browser.until(READY))
    check("it is drawn", browser.tell(DRAWN) > 8)
    changes(browser, "it zooms", SAID, lambda: browser.drag(".plot:nth-of-type(3) canvas", 150))
    check("hostile words are text there too", browser.tell("!document.querySelector('main img') && document.querySelector('main code').textContent.includes('<img src=x')"))
    problems(browser, "a file")
    check("a file asks nobody", set(browser.asked_for) == {f"file://{page}"}, browser.asked_for)
    picture(browser, "file")


def main(program, sconce, folder):
    runs = os.environ["XDG_STATE_HOME"] + "/sconce/runs"
    going = grow(runs)
    served, browser = Served(sconce), None
    try:
        doors(served)
        browser = Browser(program, folder)
        list_of_runs(browser, served)
        one_run(browser)
        problems(browser, "list and run", served)
        compared(browser, served)
        problems(browser, "comparison", served)
        live(browser, served)
        problems(browser, "live", served)
        widths(browser, served)
        in_a_file(browser, sconce, folder)
        status, metrics, _ = served.get("/metrics", served.token)
        check("the run that goes on has metrics", status == 200 and 'sconce_run_cpu_seconds_total{run="going-20261121-0100-0006"}' in metrics, metrics)
        with open(f"{folder}/metrics.txt", "w") as file:
            file.write(metrics)
        code = served.end()
        check("Ctrl-C ends it well", code == 0 and served.process.stderr.read() == "Ctrl-C ends it.\n", code)
    finally:
        if browser:
            browser.end()
        if served.process.poll() is None:
            served.process.terminate()
        going.kill()
        going.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
