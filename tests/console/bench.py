"""Times of the console, measured in headless Chromium beside a core with emulated UEs. No time is judged: hosts differ.

Usage: bench.py LINK SUPI CONFIG PROFILE
"""

import json
import os
import subprocess
import sys
import time

from browser import Chromium, Wire

LINK, SUPI, CONFIG, PROFILE = sys.argv[1:5]
WHIMBREL = os.environ["WHIMBREL"]
CORE_PORT = int(LINK.split("/#")[0].rsplit(":", 1)[1])
LINK = LINK.replace(f":{CORE_PORT}/", f":{CORE_PORT + 1}/")
WIRE = Wire(CORE_PORT + 1, CORE_PORT)

# Each new arrow: how long after its message it stands on the page.
ARROWS = """(() => { window.arrows = []; new MutationObserver((all) => { for (const m of all) for (const li of m.addedNodes) {
  const at = li.querySelector?.('.at')?.firstChild?.data; if (!at) continue;
  const now = new Date(), day = now.toISOString().slice(0, 11); window.arrows.push(now - Date.parse(`${day}${at}Z`)); } }).observe(document.querySelector('.ladder'), { childList: true }); return true; })()"""
# The moment when the first state of the page changes.
STATE = """new Promise((done) => { const state = document.querySelector('main > div .row'), before = state.innerText; new MutationObserver(() => { if (state.innerText !== before) done(Date.now()); }).observe(state, { childList: true, subtree: true, characterData: true }); setTimeout(() => done(0), 15000); })"""


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * q))] if values else float("nan")


def row(what, goal, values, unit="ms"):
    print(f"{what:<56} p50 {quantile(values, 0.5):8.1f} {unit}   p99 {quantile(values, 0.99):8.1f} {unit}   n {len(values):4}   goal {goal}", flush=True)


def order(*words):
    subprocess.run([WHIMBREL, *words, "-c", CONFIG], capture_output=True)


def main(page):
    page.look(1440, 900, "dark")
    page.call("Page.navigate", url=LINK)
    page.until("document.querySelector('h1')", "logged in")
    page.call("Network.setCacheDisabled", cacheDisabled=True)
    views, octets = [], 0
    for _ in range(10):
        page.go("#/")
        since, begin = WIRE.received, time.time()
        page.call("Page.reload")
        page.until("document.querySelector('.alarms, .calm') && document.querySelectorAll('.topology circle').length >= 5 && document.querySelector('main table') && performance.getEntriesByType('navigation')[0]", "the overview")
        views.append((time.time() - begin) * 1000)
        time.sleep(0.3)
        octets = WIRE.received - since
    row("first view of the overview, nothing cached", "500 ms", views)
    print(f"{'octets of the first view':<56} {octets}   goal 150,000", flush=True)
    page.listen(4)
    since = WIRE.received
    page.listen(30)
    print(f"{'octets that an idle dashboard receives in 30 s':<56} {WIRE.received - since}   goal 5,000", flush=True)

    page.go(f"#/ues/{SUPI}")
    page.until("document.querySelectorAll('.rung').length > 10", "the signalling")
    page.run(ARROWS)
    for _ in range(40):
        order("ue", "locate", SUPI)
        time.sleep(0.1)
    time.sleep(0.5)
    row("an arrow is on the page, after its message", "100 ms", page.run("window.arrows"))

    states = []
    for n in range(2, 6):
        supi = SUPI[:-4] + f"{n:04}"
        page.go(f"#/ues/{supi}")
        page.until(f"document.querySelector('h1').innerText === {json.dumps(supi)} && document.querySelector('main').innerText.includes('registered')", "the UE")
        time.sleep(1.5)
        page.run(f"window.changed = {STATE}; true")
        order("ue", "deregister", supi)
        changed = page.run("window.changed")
        events = page.run("fetch('/api/v1/events?since=0&limit=1000').then((r) => r.json())")
        at = [e["at"] for e in events if e["subject"] == supi and e["kind"] == "deregistered"]
        if changed and at:
            states.append(changed - page.run(f"Date.parse({json.dumps(at[-1])})"))
    row("a state is on the page, after its event", "200 ms", states)


with Chromium(PROFILE) as tab:
    main(tab)
