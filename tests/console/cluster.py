"""The cluster page in headless Chromium, while a CPF is killed.

Usage: cluster.py LINK FOLDER PROFILE PID...       the CPFs, in the order of their numbers
Environment: AXE, as for pages.py.
"""

import os
import signal
import sys
import time

import browser
from browser import Chromium, verdict

LINK, FOLDER, PROFILE = sys.argv[1:4]
PIDS = [int(pid) for pid in sys.argv[4:]]
AXE = open(os.environ["AXE"]).read() if os.environ.get("AXE") else None


def main(page):
    page.look(1440, 900, "dark")
    page.call("Page.navigate", url=LINK)
    page.until("document.querySelector('h1')", "logged in")
    page.go("#/cluster")
    page.until("document.querySelectorAll('.ring .gnb').length === 3", "three CPFs are on the ring")
    page.until("document.querySelectorAll('.timeline .joined').length === 3", "the timeline has the three CPFs that joined")
    cpfs = page.run("fetch('/api/v1/cluster').then((r) => r.json()).then((c) => c.cpfs)")
    busiest = max(cpfs, key=lambda cpf: cpf["primary_of"])
    os.kill(PIDS[busiest["id"] - 1], signal.SIGKILL)
    page.until("document.querySelectorAll('.ring .gnb').length === 2", "a CPF that was killed leaves the ring on the page")
    lost = page.until("document.querySelector('.timeline .lost p')?.innerText.includes('taken over')", "the timeline has the loss")
    took = page.until("document.querySelector('.timeline .takeover')?.innerText.includes('took')", "the timeline has the takeover with its time")
    verdict(lost and took, "the timeline has a killed CPF and the takeover of its UEs")
    taken = page.run("fetch('/api/v1/cluster').then((r) => r.json()).then((c) => [c.log.taken_over, c.log.lost])")
    verdict(taken == [busiest["primary_of"], 0] and taken[0] > 0, f"the page counts the {taken[0]} UEs that were taken over", f"{taken} after the loss of {busiest}")
    for width, theme in [(1440, "dark"), (390, "light")]:
        page.look(width, 900, theme)
        time.sleep(0.25)
        with open(os.path.join(FOLDER, f"cluster-of-cpfs-{width}-{theme}.png"), "wb") as out:
            out.write(page.shot())
        wide = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        verdict(wide <= 0, f"a cluster of CPFs at {width} px does not scroll sideways", f"{wide} px too wide")
        if AXE:
            page.run(AXE + "; true")
            wrong = page.run("axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => `${v.id}: ${v.nodes[0].target}`))")
            verdict(not wrong, f"a cluster of CPFs at {width} px in {theme} is accessible", str(wrong))


with Chromium(PROFILE) as tab:
    try:
        main(tab)
    except Exception as e:  # a check that could not be made is a failed one
        verdict(False, "the cluster page can be checked", repr(e))
sys.exit(bool(browser.failed))
