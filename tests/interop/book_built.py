#!/usr/bin/env python3
"""mdBook builds the book, and each link and each anchor in its pages leads somewhere. WHIMBREL_MDBOOK names mdBook."""
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
mdbook = os.environ.get("WHIMBREL_MDBOOK", "")
if not os.access(mdbook, os.X_OK):
    print("mdBook is not installed: WHIMBREL_MDBOOK does not name it")
    sys.exit(77)

with tempfile.TemporaryDirectory() as out:
    done = subprocess.run([mdbook, "build", "--dest-dir", out, f"{ROOT}/docs"], capture_output=True, text=True)
    noted = [line for line in (done.stdout + done.stderr).splitlines() if re.search(r"\b(WARN|ERROR)\b", line)]
    if done.returncode != 0 or noted:
        sys.exit(f"WRONG: mdBook: {done.stdout}{done.stderr}")
    pages = {}
    for folder, _, files in os.walk(out):
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), out)
            if name.endswith(".html") and path not in ("print.html", "toc.html", "404.html"):
                with open(os.path.join(out, path)) as file:
                    pages[path] = file.read()
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    wrong, links = [], 0
    for path, text in pages.items():
        body = text.split("<main>", 1)[-1].split("</main>", 1)[0]
        for href in re.findall(r'<a [^>]*href="([^"]+)"', body):
            if re.match(r"[a-z]+:", href):
                continue
            links += 1
            file, _, anchor = urllib.parse.unquote(href).partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            if not os.path.exists(os.path.join(out, target)):
                wrong.append(f"{path}: {href}: there is no such page")
            elif anchor and anchor not in ids.get(target, set()):
                wrong.append(f"{path}: {href}: there is no such heading")
    if wrong or links < 100:
        sys.exit("WRONG: " + "\n".join(wrong[:40] or [f"only {links} links were found"]))
    print(f"{len(pages)} pages, {links} links")
