"""Headless Chromium over its DevTools protocol, with nothing beyond Python's standard library."""

import base64
import json
import os
import re
import socket
import struct
import subprocess
import threading
import time
import urllib.request

failed = 0


def verdict(good, name, more=""):
    """Prints a line that the test suite counts."""
    global failed
    failed += not good
    print(f"{'ok' if good else 'not ok'} - console: {name}{'' if good else f': {more}'}", flush=True)
    return good


class Page:
    """A page of Chromium, over a WebSocket (RFC 6455) of our own: the standard library has none."""

    def __init__(self, url):
        host, path = re.match(r"ws://([^/]+)(/.*)", url).groups()
        name, port = host.split(":")
        self.socket = socket.create_connection((name, int(port)), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        self.buffer = self.buffer.split(b"\r\n\r\n", 1)[1]
        self.number = 0
        self.events = []

    def octets(self, n):
        while len(self.buffer) < n:
            part = self.socket.recv(1 << 16)
            if not part:
                raise EOFError("Chromium ended")
            self.buffer += part
        taken, self.buffer = self.buffer[:n], self.buffer[n:]
        return taken

    def message(self):
        text = b""
        while True:
            first, second = self.octets(2)
            length = second & 127
            if length == 126:
                length = struct.unpack(">H", self.octets(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.octets(8))[0]
            text += self.octets(length)
            if first & 0x80:
                return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        text = json.dumps({"id": self.number, "method": method, "params": parameters}).encode()
        # A mask of zeros leaves the octets as they are (RFC 6455 §5.3): axe-core has half a megabyte.
        length = len(text)
        if length < 126:
            head = struct.pack(">BB", 0x81, 0x80 | length)
        elif length < 65536:
            head = struct.pack(">BBH", 0x81, 0x80 | 126, length)
        else:
            head = struct.pack(">BBQ", 0x81, 0x80 | 127, length)
        self.socket.sendall(head + bytes(4) + text)
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "exception"))
        return answer["result"].get("value")

    def until(self, script, name, within=15):
        end = time.time() + within
        while time.time() < end:
            if self.run(f"!!({script})"):
                return True
            time.sleep(0.05)
        verdict(False, name, f"not within {within} s: {self.run('document.body.innerText.slice(0, 600)')}")
        return False

    def go(self, fragment):
        self.run(f"location.hash = {json.dumps(fragment)}; true")
        time.sleep(0.2)

    def look(self, width, height, theme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.run(f"document.documentElement.dataset.theme = {json.dumps(theme)}; true")

    def shot(self, whole=False):
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)["data"]
        return base64.b64decode(data)

    def key(self, key, **more):
        """Presses a key, as a person does."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": key} if len(key) == 1 else {}), **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def listen(self, seconds):
        """Takes the events of so many seconds."""
        end = time.time() + seconds
        while time.time() < end:
            self.run("1")
            time.sleep(0.1)


class Wire:
    """What lies between browser and core: it counts octets, and can be cut."""

    def __init__(self, port, core):
        self.core, self.received, self.is_cut, self.open = core, 0, False, set()
        self.listener = socket.create_server(("127.0.0.1", port), backlog=64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            browser, _ = self.listener.accept()
            if self.is_cut:
                browser.close()
                continue
            try:
                core = socket.create_connection(("127.0.0.1", self.core))
            except OSError:
                browser.close()
                continue
            self.open |= {browser, core}
            threading.Thread(target=self.carry, args=(browser, core, False), daemon=True).start()
            threading.Thread(target=self.carry, args=(core, browser, True), daemon=True).start()

    def carry(self, source, sink, counted):
        try:
            while octets := source.recv(65536):
                self.received += len(octets) if counted else 0
                sink.sendall(octets)
        except OSError:
            pass
        for end in (source, sink):
            self.open.discard(end)
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends all connections, and lets none begin."""
        self.is_cut = True
        for end in list(self.open):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def mend(self):
        self.is_cut = False


class Chromium:
    """A browser with a profile of its own, which ends with the block."""

    def __init__(self, profile):
        self.profile = profile

    def __enter__(self):
        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--force-color-profile=srgb", "--font-render-hinting=none", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--remote-debugging-port=9333", f"--user-data-dir={self.profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                pages = json.load(urllib.request.urlopen("http://127.0.0.1:9333/json", timeout=2))
                page = Page(next(p for p in pages if p["type"] == "page")["webSocketDebuggerUrl"])
                break
            except (OSError, StopIteration):
                time.sleep(0.1)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        return page

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
