"""Opens pages in chromium and uses them: pages.py BROWSER FOLDER. It is spoken to through a pipe, as its
DevTools protocol has it, so that no package and no port is needed."""

import json
import os
import subprocess
import sys
import time

from checks import check, failed

PATIENCE = 20


class Browser:
    """One page of a headless chromium."""

    def __init__(self, program, folder):
        ours, theirs = os.pipe(), os.pipe()
        words = ["--headless=new", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", "--disable-background-networking",
                 f"--user-data-dir={folder}/profile", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank"]
        # In containers there often are no namespaces for its own walls.
        words.insert(0, "--no-sandbox")
        move = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        self.process = subprocess.Popen(["sh", "-c", move, "sh", program, *words], pass_fds=(ours[0], theirs[1]),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.of = ours[1], theirs[0]
        self.rest, self.number, self.session = b"", 0, None
        self.problems, self.asked_for = [], []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **named):
        self.number += 1
        message = {"id": self.number, "method": method, "params": named}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def next(self):
        while b"\0" not in self.rest:
            more = os.read(self.of, 1 << 20)
            if not more:
                raise RuntimeError("the browser is gone")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        method, about = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(about["exceptionDetails"].get("text", "an exception"))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert", "warning"):
            self.problems.append(str([one.get("value") for one in about["args"]]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.problems.append(about["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append("a dialog: " + about["message"])
        elif method == "Network.requestWillBeSent":
            self.asked_for.append(about["request"]["url"])

    def tell(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def until(self, expression):
        end = time.monotonic() + PATIENCE
        while not self.tell(expression):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        # What was asked to be drawn is.
        self.tell("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
        return True

    def open(self, path, width=1200, scheme="light"):
        self.problems, self.asked_for = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=f"file://{path}")
        return self.until("document.readyState === 'complete' && location.protocol === 'file:'")

    def place(self, selector):
        self.tell(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        return self.tell(f"(r => [r.x + r.width / 2, r.y + r.height / 2, r.width])(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")

    def click(self, selector, right=0):
        x, y, _ = self.place(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x + right, y=y, button="left", clickCount=1)

    def wheel(self, selector, by):
        x, y, _ = self.place(selector)
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def drag(self, selector, by):
        x, y, _ = self.place(selector)
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + by, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + by, y=y, button="left", clickCount=1)

    def key(self, key, text=None):
        named = {"key": key, "text": text} if text else {"key": key}
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}
        if key in codes:
            named["windowsVirtualKeyCode"] = codes[key]
        self.call("Input.dispatchKeyEvent", type="keyDown", **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def end(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(PATIENCE)


def changes(browser, name, expression, do):
    before = browser.tell(expression)
    do()
    check(name, browser.until(f"({expression}) !== {json.dumps(before)}"), f"still {before}")


def timeline(browser, folder):
    browser.open(f"{folder}/timeline.html")
    check("the timeline is there", browser.until("!document.querySelector('#timeline').hidden && document.querySelector('#said').textContent !== ''"))
    drawn = "(c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size)(document.querySelector('#view'))"
    colours = browser.tell(drawn)
    check("it is drawn", colours > 8, colours)
    said, seen = "document.querySelector('#said').textContent", "document.querySelector('#view').getAttribute('aria-label')"
    changes(browser, "a click chooses a moment", said, lambda: browser.click("#view", 100))
    changes(browser, "the wheel zooms", seen, lambda: browser.wheel("#view", -300))
    changes(browser, "a button zooms", seen, lambda: browser.click("#in"))
    changes(browser, "dragging moves", seen, lambda: browser.drag("#view", 200))
    changes(browser, "the whole again", seen, lambda: browser.click("#all"))
    browser.tell("document.querySelector('#view').focus()")
    changes(browser, "a key zooms", seen, lambda: browser.key("+", "+"))
    changes(browser, "an arrow moves", seen, lambda: browser.key("ArrowRight"))
    changes(browser, "the peak is found", said, lambda: browser.click("#peak"))
    changes(browser, "the axis is time", "document.querySelector('#by-time').checked", lambda: browser.click("#by-time"))
    rows = browser.tell("document.querySelectorAll('#rows tr').length")
    check("what is live has rows", rows > 0, rows)
    changes(browser, "a row has its stack", "document.querySelector('#rows details').open", lambda: browser.click("#rows summary"))


def reading(browser, name):
    """What can be opened opens, by mouse and by keys."""
    if browser.tell("!document.querySelector('details')"):
        return
    opened = "document.querySelector('details').open"
    changes(browser, f"{name}: a click opens a stack", opened, lambda: browser.click("summary"))
    for _ in range(60):
        browser.key("Tab")
        if browser.tell("document.activeElement.tagName === 'SUMMARY'"):
            break
    changes(browser, f"{name}: keys do too", "document.activeElement.parentElement.open", lambda: browser.key("Enter", "\r"))


def main(program, folder):
    browser = Browser(program, folder)
    try:
        timeline(browser, folder)
        check("timeline: nothing fails in it", not browser.problems, browser.problems)
        for name in ("timeline", "fit", "what-if", "diff"):
            path = f"{folder}/{name}.html"
            check(f"{name}: it opens", browser.open(path) and browser.tell("document.querySelector('h1').textContent.length > 0"))
            if name == "fit":
                check("fit: what is hostile is text", browser.tell("document.body.textContent.includes('<img src=x onerror=alert(1)>') && !document.querySelector('img, script')"))
                check("fit: both cards", browser.tell("document.querySelectorAll('article').length === 2"))
            reading(browser, name)
            light = browser.tell("getComputedStyle(document.body).backgroundColor")
            browser.until("true")
            problems, asked_for = browser.problems, browser.asked_for
            check(f"{name}: nothing fails in it", not problems, problems)
            check(f"{name}: nothing is fetched", set(asked_for) == {f"file://{path}"}, asked_for)
            browser.open(path, width=390, scheme="dark")
            check(f"{name}: it is dark in the dark", browser.tell("getComputedStyle(document.body).backgroundColor") != light, light)
            wide = browser.tell("document.documentElement.scrollWidth")
            check(f"{name}: a phone shows all of its width", wide <= 390, wide)
            if pictures := os.environ.get("PICTURES"):
                import base64

                picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
                with open(f"{pictures}/{name}-phone.png", "wb") as file:
                    file.write(base64.b64decode(picture))
    finally:
        browser.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
