"""Opens the console's pages in headless Chromium over its DevTools protocol, checks them, and takes screenshots.

Usage: pages.py LINK SUPI FOLDER PROFILE
"""

import base64
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request

LINK, SUPI, FOLDER, PROFILE = sys.argv[1:5]
BASE = LINK.split("/#")[0]
failed = 0


def verdict(good, name, more=""):
    global failed
    failed += not good
    print(f"{'ok' if good else 'not ok'} - console: {name}{'' if good else f': {more}'}", flush=True)


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
        mask = os.urandom(4)
        head = bytes([0x81]) + (
            bytes([0x80 | len(text)]) if len(text) < 126 else bytes([0x80 | 126]) + struct.pack(">H", len(text))
        )
        self.socket.sendall(head + mask + bytes(o ^ mask[i % 4] for i, o in enumerate(text)))
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

    def shot(self, name, whole=False):
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)["data"]
        with open(os.path.join(FOLDER, f"{name}.png"), "wb") as out:
            out.write(base64.b64decode(data))


# Names by which the elements of a page can be reached: what a screen reader needs (WCAG 2.2, 1.3.1, 2.4.4, 4.1.2).
ACCESSIBLE = """(() => {
  const wrong = [];
  const text = (e) => (e.getAttribute('aria-label') || e.innerText || e.title || e.alt || '').trim();
  for (const e of document.querySelectorAll('button, a[href]')) if (!text(e) && !e.querySelector('img[alt]:not([alt=""])')) wrong.push(e.outerHTML.slice(0, 120));
  for (const e of document.querySelectorAll('input, select, textarea')) if (!e.labels?.length && !e.getAttribute('aria-label')) wrong.push(e.outerHTML.slice(0, 120));
  for (const e of document.querySelectorAll('img')) if (e.getAttribute('alt') === null) wrong.push(e.outerHTML.slice(0, 120));
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  if (new Set(ids).size !== ids.length) wrong.push('an id stands twice');
  if (document.querySelectorAll('h1').length !== 1) wrong.push('not one h1');
  const rgb = (t) => (t.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return rgb(getComputedStyle(document.body).backgroundColor); };
  for (const e of document.querySelectorAll('main *, nav a, header *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.closest('svg, button:disabled') || !e.offsetParent) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) wrong.push(`contrast ${contrast.toFixed(2)}: ${e.innerText.slice(0, 40)}`);
  }
  return wrong;
})()"""


def check(page, name):
    for width, height, theme in [(1440, 900, "dark"), (390, 844, "light")]:
        page.look(width, height, theme)
        time.sleep(0.25)
        page.shot(f"{name}-{width}-{theme}")
        if name in ("overview", "ue"):
            page.shot(f"{name}-{width}-{theme}-whole", whole=True)
        wide = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        verdict(wide <= 0, f"{name} at {width} px does not scroll sideways", f"{wide} px too wide")
        wrong = page.run(ACCESSIBLE)
        verdict(not wrong, f"{name} at {width} px in {theme} is accessible", str(wrong[:8]))
    page.look(1440, 900, "dark")


def main(page):
    for domain in ("Page", "Runtime", "Log", "Network"):
        page.call(f"{domain}.enable")
    begin = time.time()
    page.look(1440, 900, "dark")
    page.call("Page.navigate", url=LINK)
    page.until("document.querySelector('h1')?.innerText === 'Settings'", "a one-time link logs in and asks for the first user")
    verdict("link" not in page.run("location.href"), "the link's secret leaves the address", page.run("location.href"))
    check(page, "first-user")
    page.run("""(() => { const form = [...document.querySelectorAll('form')].find((f) => f.innerText.includes('Make the user'));
      const [name, password] = form.querySelectorAll('input'); name.value = 'anna'; password.value = 'a curlew in the mud'; form.requestSubmit(); return true; })()""")
    page.until("document.querySelector('main table')?.innerText.includes('anna')", "the first user is made")
    page.run("[...document.querySelectorAll('header button')].find((b) => b.innerText === 'Log out').click(); true")
    page.until("document.querySelector('.door')", "logging out leads to the login page")
    check(page, "login")
    page.run("""(() => { const [name, password] = document.querySelectorAll('input'); name.value = 'anna'; password.value = 'a curlew in the mud'; document.querySelector('form').requestSubmit(); return true; })()""")
    page.until("document.querySelector('h1')?.innerText === 'Overview'", "the user logs in by password")
    page.until("document.querySelector('.alarms')?.innerText.includes('barred')", "the overview explains the refused UE")
    page.until("[...document.querySelectorAll('.alarms .fix')].map((e) => e.innerText).join().includes('--status enabled')", "the overview has the fix")
    page.until("document.querySelectorAll('.topology circle').length >= 5", "the overview shows the gNBs")
    page.until("document.querySelector('.live.up')", "the page is live")
    check(page, "overview")
    page.go("#/ues")
    page.until("document.querySelectorAll('main tbody tr').length >= 5", "the UEs are listed")
    check(page, "ues")
    page.run("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true })); true")
    verdict(page.run("document.activeElement.id") == "find", "one key leads to the search")
    page.go("#/ues?find=" + SUPI[-4:])
    page.until(f"location.hash.endsWith({json.dumps(SUPI)})", "a search with one result opens the UE")
    page.until("document.querySelectorAll('.rung').length > 16", "the UE has its signalling")
    names = page.run("[...document.querySelectorAll('.rung .name')].map((e) => e.firstChild.data)")
    for name in ["REGISTRATION REQUEST", "AUTHENTICATION REQUEST", "SECURITY MODE COMMAND", "REGISTRATION ACCEPT", "REGISTRATION COMPLETE",
                 "PDU SESSION ESTABLISHMENT REQUEST", "PFCP Session Establishment Request", "PDU SESSION ESTABLISHMENT ACCEPT"]:
        verdict(name in names, f"the signalling has {name}", str(names))
    check(page, "ue")
    page.run("[...document.querySelectorAll('.rung')].find((e) => e.innerText.includes('PDU SESSION ESTABLISHMENT ACCEPT')).click(); true")
    page.until("document.querySelector('.detail')?.innerText.includes('TS 24.501')", "an arrow opens to its fields with the clause")
    page.run("document.querySelector('.detail').scrollIntoView({ block: 'center' }); true")
    check(page, "ue-message")
    text = page.run("document.body.innerText").lower()
    verdict("00112233445566778899aabbccddeeff" not in text, "no key is on the page")
    page.go("#/gnbs")
    page.until("document.querySelectorAll('main tbody tr').length >= 5", "the gNBs are listed")
    check(page, "gnbs")
    page.go("#/subscribers")
    page.until("document.querySelectorAll('main tbody tr').length >= 9", "the subscribers are listed")
    check(page, "subscribers")
    page.go(f"#/subscribers/{SUPI}")
    page.until("document.querySelector('textarea')?.value.includes('supi')", "a subscriber's record is shown")
    page.run(f"fetch('/api/v1/session').then((r) => r.json()).then((me) => fetch('/api/v1/subscribers/{SUPI}', {{ method: 'PATCH', headers: {{ 'Content-Type': 'application/json', 'X-CSRF-Token': me.csrf }}, body: '{{\"msisdn\": \"491701234567\"}}' }})).then((r) => r.status)")
    page.run("""(() => { const t = document.querySelector('textarea'); t.value = t.value.replace('"enabled"', '"barred"'); t.dispatchEvent(new Event('input'));
      [...document.querySelectorAll('button')].find((b) => b.innerText === 'Save').click(); return true; })()""")
    page.until("document.querySelector('main').innerText.includes('Make my change to it')", "a conflict shows both versions")
    check(page, "conflict")
    page.run("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Make my change to it').click(); true")
    page.until("JSON.parse(document.querySelector('textarea').value).status === 'barred' && JSON.parse(document.querySelector('textarea').value).msisdn === '491701234567'", "a conflict loses nothing")
    page.go("#/audit")
    page.until("document.querySelector('main').innerText.includes('anna')", "the audit log names the user")
    check(page, "audit")
    # What others wrote is text, wherever it stands.
    evil = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
    page.run(f"""(() => {{ const before = window.fetch; window.fetch = async (path, ...more) => {{
      const answer = await before(path, ...more);
      if (!String(path).includes('/api/v1/')) return answer;
      const walk = (v) => typeof v === 'string' && !/^\\d{{4}}-\\S+$/.test(v) ? v + {json.dumps(evil)} : Array.isArray(v) ? v.map(walk) : v && typeof v === 'object' ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, walk(x)])) : v;
      const text = await answer.text();
      return new Response(text ? JSON.stringify(walk(JSON.parse(text))) : null, {{ status: answer.status }});
    }}; return true; }})()""")
    for fragment in ["#/", "#/ues", f"#/ues/{SUPI}", "#/gnbs", "#/subscribers", f"#/subscribers/{SUPI}", "#/audit", "#/settings"]:
        page.go(fragment)
        time.sleep(0.5)
        bad = page.run("window.pwned || document.querySelectorAll('main img, main script').length")
        shown = page.run("document.querySelector('main').innerText.includes('onerror') || document.querySelector('main textarea')?.value.includes('onerror')")
        verdict(not bad and shown, f"markup in names is text on {fragment}", f"bad={bad} shown={shown}")
    errors = [e for e in page.events if e["method"] == "Runtime.exceptionThrown" or (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error" and "412" not in e["params"]["entry"]["text"] and "404" not in e["params"]["entry"]["text"] and "401" not in e["params"]["entry"]["text"])]
    verdict(not errors, "no error in the browser's console", json.dumps(errors[:3])[:800])
    foreign = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent" and not e["params"]["request"]["url"].startswith((BASE, "data:"))]
    verdict(not foreign, "nothing is loaded from elsewhere", str(foreign[:5]))
    print(f"# {time.time() - begin:.1f} s", flush=True)


chromium = subprocess.Popen(
    ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
     "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=9333",
     f"--user-data-dir={PROFILE}", "about:blank"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    for _ in range(200):
        try:
            pages = json.load(urllib.request.urlopen("http://127.0.0.1:9333/json", timeout=2))
            page = next(p for p in pages if p["type"] == "page")
            break
        except (OSError, StopIteration):
            time.sleep(0.1)
    main(Page(page["webSocketDebuggerUrl"]))
except Exception as e:  # a check that could not be made is a failed one
    verdict(False, "the pages can be checked", repr(e))
finally:
    chromium.kill()
    chromium.wait()
sys.exit(bool(failed))
