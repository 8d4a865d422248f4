"""Opens the console's pages in headless Chromium, checks them, and takes screenshots.

Usage: pages.py LINK SUPI FOLDER PROFILE [--keep]
Environment: AXE, the file axe.min.js; without it simpler checks of accessibility are made.
"""

import json
import os
import subprocess
import sys
import time

import browser
import pictures
from browser import Chromium, Wire, verdict

LINK, SUPI, FOLDER, PROFILE = sys.argv[1:5]
KEEP = "--keep" in sys.argv
# The browser reaches the core through a wire of its own, at the port beside the core's.
CORE_PORT = int(LINK.split("/#")[0].rsplit(":", 1)[1])
LINK = LINK.replace(f":{CORE_PORT}/", f":{CORE_PORT + 1}/")
BASE = LINK.split("/#")[0]
WIRE = Wire(CORE_PORT + 1, CORE_PORT)
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pictures")
AXE = open(os.environ["AXE"]).read() if os.environ.get("AXE") else None
PASSWORD = "a curlew in the mud"

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


# What is live, or differs from run to run, is not on kept pictures.
MASK = """(() => { const sheet = new CSSStyleSheet(); sheet.replaceSync(`time, .value, td, dd, .name small, .at, .spark, main .quiet, .why p, textarea { visibility: hidden } .alarms, .events, .ladder, .history { display: none }
  tbody tr:nth-child(n+4) { display: none } .toast { display: none }`); document.adoptedStyleSheets = [sheet]; return true; })()"""
# Pages of which a picture is kept: few, of different kinds.
KEPT_PICTURES = {("login", 1440, "dark"), ("login", 390, "light"), ("overview", 1440, "dark"), ("ue", 390, "light"), ("network", 1440, "dark"), ("cluster", 390, "light")}


def violations(page):
    """What axe-core finds, or the simpler checks where there is none."""
    if AXE is None:
        return page.run(ACCESSIBLE)
    if not page.run("!!window.axe"):
        page.run(AXE + "; true")
    return page.run("""axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) =>
      `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target.join(' ')} ${(n.any[0] ?? n.all[0] ?? n.none[0])?.message ?? ''}`).join('; ')}`))""")


def check(page, name):
    for width in (768, 2560):
        page.look(width, 900, "dark")
        wide = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        verdict(wide <= 0, f"{name} at {width} px does not scroll sideways", f"{wide} px too wide")
    for width, height, theme in [(1440, 900, "dark"), (390, 844, "light")]:
        page.look(width, height, theme)
        time.sleep(0.25)
        with open(os.path.join(FOLDER, f"{name}-{width}-{theme}.png"), "wb") as out:
            out.write(page.shot())
        wide = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        verdict(wide <= 0, f"{name} at {width} px does not scroll sideways", f"{wide} px too wide")
        wrong = violations(page)
        verdict(not wrong, f"{name} at {width} px in {theme} is accessible", str(wrong[:8]))
        if (name, width, theme) in KEPT_PICTURES:
            page.run(MASK)
            page.run("document.activeElement?.blur(); window.scrollTo(0, 0); true")
            time.sleep(0.25)
            differs = pictures.compare(page.shot(), os.path.join(KEPT, f"{name}-{width}-{theme}.png"), KEEP)
            verdict(differs is None, f"{name} at {width} px in {theme} looks as kept", differs)
            page.run("document.adoptedStyleSheets = []; true")
    page.look(1440, 900, "dark")


def explained(page):
    """Each injected fault is explained on the first page, with its fix."""
    faults = [line.strip().split("|") for line in open(os.environ["FAULTS"])]
    shown = page.run("[...document.querySelectorAll('.alarms li')].map((li) => [li.querySelector('strong').innerText, li.querySelector('p').innerText, li.querySelector('.fix')?.innerText ?? ''])")
    good = [fault for fault in faults if any(fault[0] in s and fault[1] in sentence and fix for s, sentence, fix in shown)]
    verdict(len(good) == len(faults) == 12, f"{len(good)} of {len(faults)} injected faults are explained on the first page", f"{[f for f in faults if f not in good]} in {shown}")


def first_view(page):
    """Octets until the overview is complete, in a browser that has none of it."""
    page.call("Network.setCacheDisabled", cacheDisabled=True)
    since = WIRE.received
    page.call("Page.reload")
    time.sleep(0.2)
    page.until("document.querySelector('.alarms, .calm') && document.querySelectorAll('.topology circle').length >= 5 && document.querySelector('main table')", "the overview is complete")
    octets = WIRE.received - since
    verdict(0 < octets <= 150_000, f"the first view takes {octets} octets", "more than 150 KB")
    page.call("Network.setCacheDisabled", cacheDisabled=False)


def idle(page):
    """An idle dashboard: 5 KB in 30 s, in a sixth of the time."""
    page.until("document.querySelector('.live.up')", "the page is live again")
    page.listen(4)  # what came late, as the end of a gNB, is on the page then
    since = WIRE.received
    page.listen(5)
    octets = WIRE.received - since
    verdict(octets <= 5_000 // 6, f"an idle dashboard receives {octets} octets in 5 s", "more than 5 KB in 30 s")


def keystrokes(page):
    """Any UE in two keystrokes: one leads to the search, one pastes a name of the UE."""
    ue = page.run(f"fetch('/api/v1/ues/{SUPI}').then((r) => r.json())")
    names = {"SUPI": SUPI, "IMEI": ue["pei"], "5G-TMSI": ue["tmsi"], "address": ue["sessions"][0]["ipv4"], "gNB": ue["gnb"]}
    for kind, name in names.items():
        page.go("#/gnbs")
        page.until("document.querySelector('h1')?.innerText === 'gNBs'", "the page of gNBs is open")
        page.run("document.activeElement?.blur(); true")
        page.key("/")
        page.call("Input.insertText", text=name)
        there = page.until(f"location.hash.endsWith({json.dumps(SUPI)}) && document.querySelector('h1').innerText === {json.dumps(SUPI)}", f"a UE is found by its {kind} ({name}) with two keystrokes")
        verdict(there, f"a UE is found by its {kind} with two keystrokes")


# A core with 100,000 UEs, as far as lists ask for them.
MANY = """(() => { const before = window.fetch, count = 100000, supi = (i) => `imsi-99970${String(i).padStart(10, '0')}`; window.asked = 0;
  window.fetch = async (path, ...more) => {
    const url = new URL(path, location.href);
    if (url.pathname === '/api/v1/status') return new Response(JSON.stringify({ ...await (await before(path, ...more)).json(), ues: count }));
    if (url.pathname !== '/api/v1/ue-summaries') return before(path, ...more);
    window.asked += 1;
    const after = url.searchParams.get('after'), from = after ? Number(after.slice(10)) + 1 : 0, to = Math.min(count, from + Number(url.searchParams.get('limit')));
    const ues = []; for (let i = from; i < to; i += 1) ues.push({ supi: supi(i), state: 'registered', cm_state: 'CM-IDLE', gnb: 'gnb-999/70-1', tai: '999/70-1', addresses: ['10.45.0.2'], seen: new Date().toISOString() });
    return new Response(JSON.stringify({ ues, next: to < count ? supi(to - 1) : null }));
  }; window.fewer = () => { window.fetch = before; }; return true; })()"""
LONGEST_FRAME = """new Promise((done) => { const box = document.querySelector('.window'), frames = []; let last = performance.now(), y = 0;
  const step = (now) => { frames.push(now - last); last = now; y += 400; box.scrollTop = y; if (y < 60000) requestAnimationFrame(step); else done({ longest: Math.max(...frames.slice(2)), mean: frames.reduce((a, b) => a + b, 0) / frames.length, rows: document.querySelectorAll('.window tbody tr').length }); };
  requestAnimationFrame(step); })"""


def many_ues(page):
    """100,000 UEs in a list: rows on screen alone are elements, and the last one can be reached."""
    page.go("#/gnbs")
    page.run(MANY)
    page.go("#/ues")
    page.until("document.querySelector('main .row .quiet')?.innerText.includes('100,000')", "100,000 UEs are counted")
    page.until("document.querySelectorAll('.window tbody tr').length > 10", "the list of 100,000 has rows")
    scrolled = page.run(LONGEST_FRAME)
    verdict(scrolled["rows"] < 100, f"a list of 100,000 UEs has {scrolled['rows']} rows of elements", str(scrolled))
    print(f"# scrolled: longest frame {scrolled['longest']:.0f} ms, mean {scrolled['mean']:.0f} ms", flush=True)
    page.run("(() => { const box = document.querySelector('.window'); box.scrollTop = box.scrollHeight; return true; })()")
    page.until("document.querySelector('.window tbody').innerText.includes('imsi-999700000099999')", "the last of 100,000 UEs is reached", within=60)
    asked = page.run("window.asked")
    verdict(asked <= 205, f"the list of 100,000 UEs took {asked} requests")
    check(page, "many-ues")
    page.run("window.fewer(); true")


def whole_ladder(page):
    """Each message of the UE is an arrow: as many as the core's own capture has. The UE is alone at its gNB; NG SETUP is not of it."""
    time.sleep(1)  # the capture is written twice a second
    try:
        of_ue = f"ngap && ip.addr == {os.environ['GNB']} && !(ngap.procedureCode == 21)"
        read = subprocess.run(["tshark", "-r", os.environ["CAPTURE"], "-Y", of_ue], capture_output=True, text=True)
    except FileNotFoundError:
        return print("skip - console: tshark is not installed, so the arrows are not counted", flush=True)
    captured, arrows = len(read.stdout.splitlines()), page.run("document.querySelectorAll('.ladder li[data-interface=N2]').length")
    return verdict(captured == arrows > 0, f"all {captured} N2 messages of a UE are arrows", f"{arrows} are")


def sleeps(page):
    """A browser that sleeps resumes with what happened meanwhile."""
    page.go("#/ues")
    page.until("document.querySelectorAll('main tbody tr:not(.space)').length >= 5", "the UEs are listed before the sleep")
    WIRE.cut()
    page.until("document.querySelector('.live.down')", "the page shows that it is cut off")
    before = page.run("document.querySelector('.window').innerText")
    with open(os.path.join(FOLDER, "asleep"), "w"):
        pass  # run.sh deregisters a UE now
    end = time.time() + 20
    while os.path.exists(os.path.join(FOLDER, "asleep")) and time.time() < end:
        time.sleep(0.1)
    verdict(page.run("document.querySelector('.window').innerText") == before, "a page that is cut off keeps what it had")
    WIRE.mend()
    page.until("document.querySelector('.live.up')", "the page is live after its sleep", within=30)
    page.until("document.querySelector('.window').innerText.includes('deregistered') || document.querySelectorAll('.window tbody tr:not(.space)').length < 6", "after its sleep the page shows what happened meanwhile")


def import_list(page):
    """100,000 rows with 37 wrong ones: each is named, and nothing is imported."""
    begin = time.time()
    page.run("""(() => { const k = '465b5ce8b199b49faa5f0a2ee238a6bc'; let text = 'supi,k,opc\\n';
      for (let i = 1; i <= 100000; i += 1) text += `99970${String(i + 5000000).padStart(10, '0')},${k},${i % 2700 ? k : 'zebra'}\\n`;
      const files = new DataTransfer(); files.items.add(new File([text], 'list.csv', { type: 'text/csv' }));
      const form = [...document.querySelectorAll('form')].find((f) => f.querySelector('input[type=file]')); form.querySelector('input[type=file]').files = files.files; form.requestSubmit(); return true; })()""")
    named = page.until("document.querySelectorAll('main [role=status] tbody tr').length === 37", "each of 37 wrong rows of 100,000 is named", within=120)
    verdict(named and "Nothing was imported: 37 lines are wrong" in page.run("document.querySelector('main').innerText"), "an import of 100,000 rows with 37 wrong ones names each")
    print(f"# the import of 100,000 rows was judged in {time.time() - begin:.1f} s", flush=True)


def session_ends(page):
    """A session that ends in mid-edit: another login goes on with what was typed."""
    page.go("#/subscribers/" + SUPI)
    page.until("document.querySelector('textarea')?.value.includes('supi')", "the record is shown before the session ends")
    page.run("(() => { const t = document.querySelector('textarea'); t.value = t.value.replace('491701234567', '491709999999'); t.dispatchEvent(new Event('input')); return true; })()")
    page.run("fetch('/api/v1/session').then((r) => r.json()).then((me) => fetch('/api/v1/session', { method: 'DELETE', headers: { 'X-CSRF-Token': me.csrf } })).then((r) => r.status)")
    page.run("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Save').click(); true")
    page.until("document.querySelector('dialog#again')?.open", "a session that has ended asks for another login over the page")
    wrong = violations(page)
    verdict(not wrong, "the login over the page is accessible", str(wrong[:8]))
    verdict(page.run("document.querySelector('main textarea').value.includes('491709999999')"), "what was typed is still there when the session has ended")
    page.run(f"(() => {{ const d = document.querySelector('dialog#again'), [name, password] = d.querySelectorAll('input'); name.value = 'anna'; password.value = {json.dumps(PASSWORD)}; d.querySelector('form').requestSubmit(); return true; }})()")
    page.until("!document.querySelector('dialog#again')", "the other login is taken")
    page.run("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Save').click(); true")
    page.until("JSON.parse(document.querySelector('textarea').value).msisdn === '491709999999' && [...document.querySelectorAll('button')].find((b) => b.innerText === 'Save').disabled", "the edit is saved after the other login")


TYPE = """(text) => { const t = document.querySelector('main textarea'); t.value = text; t.dispatchEvent(new Event('input')); return true; }"""


def configuration(page):
    """A change of the configuration: checked as it is typed, shown as a diff, saved, restored."""
    page.go("#/config")
    page.until("document.querySelector('main textarea')?.value.includes('timers')", "the configuration is shown")
    verdict("0123456789abcdef" * 4 not in page.run("document.querySelector('main textarea').value"), "the configuration is shown without its secrets")
    text = page.run("document.querySelector('main textarea').value")
    page.run(f"({TYPE})({json.dumps(text.replace('slices: [1]', 'slices: [1, zebra]'))})")
    page.until("document.querySelector('main').innerText.includes('cannot be saved')", "a wrong value is reported before it is saved")
    verdict(page.run("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Save').disabled"), "a wrong configuration cannot be saved")
    page.run(f"({TYPE})({json.dumps(text.replace('slices: [1]', 'slices: [1, 2]'))})")
    page.until("document.querySelector('main').innerText.includes('It can be saved')", "a right value can be saved")
    verdict(page.run("[...document.querySelectorAll('.diff .added')].map((e) => e.innerText).join().includes('slices: [1, 2]')"), "the change is shown as a diff")
    check(page, "config")
    page.run("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Save').click(); true")
    page.until("document.querySelectorAll('main tbody tr').length === 2 && document.querySelector('main table').innerText.includes('anna')", "the change becomes a version with its author")
    page.go("#/network")
    page.until("[...document.querySelectorAll('main td')].some((e) => e.innerText === '2')", "the change is in force")
    page.go("#/config?key=slices")
    page.until("document.querySelector('main textarea')?.value === 'slices: [1, 2]'", "one key can be edited alone")
    page.until("[...document.querySelectorAll('button')].some((b) => b.innerText === 'Restore')", "former versions can be restored")
    page.run("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Restore').click(); true")
    page.until("document.querySelector('dialog')?.open", "a restore asks first")
    page.run("document.querySelector('dialog button[value=yes]').click(); true")
    page.until("document.querySelectorAll('main tbody tr').length === 3 && document.querySelector('main textarea').value.includes('[1]')", "a former version is restored")


def main(page):
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
    page.until("document.querySelectorAll('.alarms li').length >= 20", "the overview has an alarm for each fault")
    page.until("[...document.querySelectorAll('.alarms .fix')].map((e) => e.innerText).join().includes('--status enabled')", "the overview has the fix")
    page.until("document.querySelectorAll('.topology circle').length >= 5", "the overview shows the gNBs")
    page.until("document.querySelector('.live.up')", "the page is live")
    explained(page)
    check(page, "overview")
    first_view(page)
    idle(page)
    page.go("#/ues")
    page.until("document.querySelectorAll('main tbody tr:not(.space)').length >= 5", "the UEs are listed")
    check(page, "ues")
    keystrokes(page)
    many_ues(page)
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
    whole_ladder(page)
    text = page.run("document.body.innerText").lower()
    verdict("00112233445566778899aabbccddeeff" not in text, "no key is on the page")
    page.go("#/gnbs")
    page.until("document.querySelectorAll('main tbody tr').length >= 5", "the gNBs are listed")
    check(page, "gnbs")
    page.go("#/subscribers")
    page.until("document.querySelectorAll('main tbody tr').length >= 9", "the subscribers are listed")
    check(page, "subscribers")
    import_list(page)
    page.go(f"#/subscribers/{SUPI}")
    page.until("document.querySelector('textarea')?.value.includes('supi')", "a subscriber's record is shown")
    page.run(f"fetch('/api/v1/session').then((r) => r.json()).then((me) => fetch('/api/v1/subscribers/{SUPI}', {{ method: 'PATCH', headers: {{ 'Content-Type': 'application/json', 'X-CSRF-Token': me.csrf }}, body: '{{\"msisdn\": \"491701234567\"}}' }})).then((r) => r.status)")
    page.run("""(() => { const t = document.querySelector('textarea'); t.value = t.value.replace('"enabled"', '"barred"'); t.dispatchEvent(new Event('input'));
      [...document.querySelectorAll('button')].find((b) => b.innerText === 'Save').click(); return true; })()""")
    page.until("document.querySelector('main').innerText.includes('Make my change to it')", "a conflict shows both versions")
    check(page, "conflict")
    page.run("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Make my change to it').click(); true")
    page.until("JSON.parse(document.querySelector('textarea').value).status === 'barred' && JSON.parse(document.querySelector('textarea').value).msisdn === '491701234567'", "a conflict loses nothing")
    session_ends(page)
    page.go("#/cluster")
    page.until("document.querySelector('.timeline')", "the cluster has a timeline")
    check(page, "cluster")
    page.go("#/network")
    page.until("document.querySelector('main').innerText.includes('internet')", "the network has its data networks")
    check(page, "network")
    configuration(page)
    page.go("#/audit")
    page.until("document.querySelector('main').innerText.includes('anna')", "the audit log names the user")
    check(page, "audit")
    sleeps(page)
    # What others wrote is text, wherever it stands.
    evil = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
    page.run(f"""(() => {{ const before = window.fetch; window.fetch = async (path, ...more) => {{
      const answer = await before(path, ...more);
      if (!String(path).includes('/api/v1/')) return answer;
      const walk = (v) => typeof v === 'string' && !/^\\d{{4}}-\\S+$/.test(v) ? v + {json.dumps(evil)} : Array.isArray(v) ? v.map(walk) : v && typeof v === 'object' ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, walk(x)])) : v;
      const text = await answer.text();
      return new Response(text ? JSON.stringify(walk(JSON.parse(text))) : null, {{ status: answer.status }});
    }}; return true; }})()""")
    for fragment in ["#/", "#/ues", f"#/ues/{SUPI}", "#/gnbs", "#/cluster", "#/network", "#/subscribers", f"#/subscribers/{SUPI}", "#/config", "#/audit", "#/settings"]:
        page.go(fragment)
        time.sleep(0.5)
        bad = page.run("window.pwned || document.querySelectorAll('main img, main script').length")
        page.run("""new Promise((done) => { const end = Date.now() + 8000; const look = () => document.querySelector('main').innerText.includes('onerror') || document.querySelector('main textarea')?.value.includes('onerror') || Date.now() > end ? done(true) : setTimeout(look, 50); look(); })""")
        shown = page.run("document.querySelector('main').innerText.includes('onerror') || document.querySelector('main textarea')?.value.includes('onerror')")
        verdict(not bad and shown, f"markup in names is text on {fragment}", f"bad={bad} shown={shown}")
    errors = [e for e in page.events if e["method"] == "Runtime.exceptionThrown" or (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error" and not any(known in e["params"]["entry"]["text"] for known in ("412", "404", "401", "422", "ERR_CONNECTION", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE")))]
    verdict(not errors, "no error in the browser's console", json.dumps(errors[:3])[:800])
    foreign = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent" and not e["params"]["request"]["url"].startswith((BASE, "data:"))]
    verdict(not foreign, "nothing is loaded from elsewhere", str(foreign[:5]))
    print(f"# {time.time() - begin:.1f} s", flush=True)


with Chromium(PROFILE) as tab:
    try:
        main(tab)
    except Exception as e:  # a check that could not be made is a failed one
        verdict(False, "the pages can be checked", repr(e))
sys.exit(bool(browser.failed))
