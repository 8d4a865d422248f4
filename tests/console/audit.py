"""Audits a default installation: ten weaknesses that web consoles of network functions have had, each tried as an attacker would.

Usage: audit.py PROGRAM FOLDER
"""

import http.client
import json
import os
import ssl
import stat
import subprocess
import sys
import time

PROGRAM, FOLDER = sys.argv[1:3]
K = "465b5ce8b199b49faa5f0a2ee238a6bc"
JSON = {"Content-Type": "application/json"}
found = 0


def verdict(weak, name, more=""):
    """A line for the test suite."""
    global found
    found += bool(weak)
    print(f"{'not ok' if weak else 'ok'} - console audit: {name}{f': {more}' if weak else ''}", flush=True)


class Core:
    """A core with its defaults, but for its files and the API's address."""

    def __init__(self, name, address):
        self.folder = os.path.join(FOLDER, name)
        os.makedirs(self.folder)
        self.config = os.path.join(self.folder, "whimbrel.yaml")
        with open(self.config, "w") as out:
            out.write(f"store: {{ path: {self.folder}/whimbrel.db, key_file: {self.folder}/whimbrel.key }}\napi: {{ address: \"{address}\" }}\n")
        self.port = int(address.rsplit(":", 1)[1])
        self.tls = not address.startswith("127.")

    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM, "run", "-c", self.config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(400):
            if subprocess.run([PROGRAM, "gnb", "list", "-c", self.config], capture_output=True).returncode == 0:
                return self
            time.sleep(0.05)
        raise RuntimeError("the core does not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def link(self):
        """The secret of a one-time link."""
        return subprocess.run([PROGRAM, "console", "-c", self.config], capture_output=True, text=True).stdout.split("\n")[0].rsplit("/", 1)[1]

    def ask(self, method, path, headers=None, body=None):
        """Status, headers and body of an answer."""
        context = ssl._create_unverified_context() if self.tls else None
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context) if self.tls else http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, body if body is None or isinstance(body, str) else json.dumps(body), headers or {})
        answer = connection.getresponse()
        return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read().decode("utf-8", "replace")


def session(core):
    """Headers of a session that a one-time link began, and its cookie as it was set."""
    status, headers, body = core.ask("POST", "/api/v1/session", JSON, {"link": core.link()})
    assert status == 200, body
    return {"Cookie": headers["set-cookie"].split(";")[0], "X-CSRF-Token": json.loads(body)["csrf"], **JSON}, headers["set-cookie"]


def on_loopback(core):
    me, cookie = session(core)  # before the guesses: they make logins from this address wait
    tried = [(name, password) for name in ("admin", "root", "whimbrel", "operator") for password in ("admin", "whimbrel", "1423", "password", "")]
    inside = [pair for pair in tried[:4] if core.ask("POST", "/api/v1/session", JSON, {"name": pair[0], "password": pair[1]})[0] == 200]
    verdict(inside or os.path.exists(f"{core.folder}/whimbrel.db.accounts"), "1. there is no user and no password before the operator makes one", str(inside))
    statuses = [core.ask("POST", "/api/v1/session", JSON, {"name": "admin", "password": str(i)})[0] for i in range(8)]
    verdict(429 not in statuses, "2. guesses of passwords have to wait", str(statuses))

    document = json.loads(core.ask("GET", "/openapi.json")[2])
    open_routes = []
    for path, methods in document["paths"].items():
        for method in methods:
            concrete = path.replace("{supi}", "imsi-999700000000001").replace("{", "").replace("}", "")
            status = core.ask(method.upper(), concrete, JSON, "{}" if method != "get" else None)[0]
            public = path in ("/openapi.json", "/metrics") or (path, method) == ("/api/v1/session", "post")
            if status != 401 and not public:
                open_routes.append(f"{method} {path}: {status}")
    verdict(open_routes, f"3. none of {len(document['paths'])} paths answers without a login", str(open_routes))

    policy = core.ask("GET", "/")[1].get("content-security-policy", "")
    weak = [part for part in ("unsafe-inline", "unsafe-eval", "*", "http:", "https:") if part in policy]
    verdict(weak or "default-src 'none'" not in policy or "script-src 'self'" not in policy, "4. the page runs no script but the console's own (CSP)", policy)
    headers = core.ask("GET", "/")[1]
    lacks = [h for h, v in {"x-frame-options": "DENY", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}.items() if headers.get(h) != v]
    verdict(lacks or "frame-ancestors 'none'" not in policy, "5. no other page frames it, and no file is taken for a script", str(lacks))

    add = {"supi": "imsi-999700000000001", "k": K, "opc": K}
    without = {k: v for k, v in me.items() if k != "X-CSRF-Token"}
    forged = {
        "without the CSRF token": core.ask("POST", "/api/v1/subscribers", without, add)[0],
        "as a form": core.ask("POST", "/api/v1/subscribers", {**without, "Content-Type": "text/plain"}, json.dumps(add))[0],
        "from another origin": core.ask("POST", "/api/v1/subscribers", {**me, "Origin": "http://evil.example"}, add)[0],
        "by another host's name (DNS rebinding)": core.ask("GET", "/api/v1/status", {**me, "Host": "evil.example:8070"})[0],
    }
    verdict([v for v in forged.values() if v != 403], "6. another web page cannot act for the operator (CSRF)", str(forged))

    assert core.ask("POST", "/api/v1/subscribers", me, add)[0] == 201
    shown = "".join(core.ask("GET", path, me)[2] for path in ("/api/v1/subscribers", "/api/v1/subscribers/imsi-999700000000001", "/api/v1/why/imsi-999700000000001", "/api/v1/config", "/api/v1/config/history", "/api/v1/audit", "/api/v1/events?since=0", "/metrics"))
    bundle = os.path.join(core.folder, "bundle.tar")
    subprocess.run([PROGRAM, "support-bundle", bundle, "-c", core.config], capture_output=True)
    octets = open(bundle, "rb").read() if os.path.exists(bundle) else b""
    store = open(f"{core.folder}/whimbrel.db", "rb").read()
    leaks = [name for name, text in {"answers": shown.encode(), "support bundle": octets, "store": store}.items() if K.encode() in text or bytes.fromhex(K) in text]
    verdict(leaks, "7. keys can be written and not read: in no answer, not in the support bundle, not in clear in the store", str(leaks))

    private = [f for f in os.listdir(core.folder) if f.startswith(("whimbrel.db", "whimbrel.key")) and stat.S_IMODE(os.stat(os.path.join(core.folder, f)).st_mode) & 0o077]
    verdict(private, "8. its files are readable by their owner only", str(private))
    return cookie


def beyond_loopback(core):
    _, cookie = session(core)
    flags = [flag for flag in ("HttpOnly", "SameSite=Strict", "Secure") if flag.lower() not in cookie.lower()]
    verdict(flags, "9. scripts, other sites and clear text do not get the session's cookie", str(flags))
    weak = []
    plain = http.client.HTTPConnection("127.0.0.1", core.port, timeout=10)
    plain.request("GET", "/api/v1/session")
    answer = plain.getresponse()
    if answer.status != 400 or "https" not in answer.read().decode():
        weak.append("clear text")
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        context = ssl._create_unverified_context()
        try:
            context.minimum_version, context.maximum_version = version, version
            context.set_ciphers("ALL:@SECLEVEL=0")
            connection = http.client.HTTPSConnection("127.0.0.1", core.port, timeout=10, context=context)
            connection.request("GET", "/")
            weak.append(version.name)
        except (ssl.SSLError, OSError, ValueError):
            pass
    verdict(weak, "10. beyond loopback it speaks TLS 1.2 or newer only", str(weak))


with Core("default", "127.0.0.1:8070") as first:
    first_cookie = on_loopback(first)
    if "httponly" not in first_cookie.lower() or "samesite=strict" not in first_cookie.lower():
        verdict(True, "9. the session's cookie on loopback", first_cookie)
with Core("tls", "0.0.0.0:8443") as second:
    beyond_loopback(second)
print(f"# {found} of 10 weaknesses", flush=True)
sys.exit(bool(found))
