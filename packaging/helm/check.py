#!/usr/bin/env python3
"""Checks the chart: check.py CHART PROGRAM. `helm` on the PATH, or else Helm's own library (requirements.txt), lints and renders it, and the
configuration in it is checked by the program. Without either, the templates' parentheses, the names of values and the values'
configuration are checked, and a line says so.
"""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

chart, program = sys.argv[1:3]


def wrong(why):
    sys.exit(f"WRONG: {why}")


def read(*path):
    with open(os.path.join(chart, *path)) as file:
        return file.read()


def values():
    """The dotted names of all values, from the file's indentation: it has maps, scalars and lists in one line only."""
    names, above = set(), []
    for line in read("values.yaml").splitlines():
        found = re.match(r"( *)([A-Za-z_0-9]+):", line)
        if found:
            depth = len(found.group(1)) // 2
            above = above[:depth] + [found.group(2)]
            names.add(".".join(above))
    return names


def check_configuration(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([program, "check", file.name], capture_output=True, text=True)
        if done.returncode != 0:
            wrong(f"the configuration is not valid: {done.stderr}")


names = values()
templates = sorted(os.listdir(os.path.join(chart, "templates")))
for name in templates:
    text = read("templates", name)
    if text.count("{{") != text.count("}}"):
        wrong(f"{name}: an action is not closed")
    actions = re.findall(r"\{\{-?\s*(.*?)\s*-?\}\}", text, re.S)
    opened = sum(bool(re.match(r"(if|with|range|define)\b", a)) for a in actions)
    if opened != sum(a == "end" for a in actions):
        wrong(f"{name}: {opened} blocks begin, and another number ends")
    for value in re.findall(r"\.Values\.([A-Za-z_0-9.]+)", text):
        if value not in names:
            wrong(f"{name}: there is no value {value}")
    defined = re.findall(r'define "([^"]+)"', read("templates", "_helpers.tpl"))
    for included in re.findall(r'include "([^"]+)"', text):
        if included not in defined:
            wrong(f"{name}: there is no template {included}")
for value in names:
    leaf = not any(other.startswith(value + ".") for other in names)
    if leaf and not value.startswith(("configuration.", "resources.")):
        used = value in "".join(re.findall(r"\.Values\.([A-Za-z_0-9.]+)\s*", "\n".join(read("templates", t) for t in templates)))
        if not used:
            wrong(f"the value {value} is used by no template")

# Root without DAC_OVERRIDE opens the volume by the group that the image's user has, whoever wrote it.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oci", "image.py")) as file:
    image_user = re.search(r"^USER = (\d+)$", file.read(), re.M).group(1)
if re.findall(r"^ *fsGroup: (\d+)$", read("templates", "statefulset.yaml"), re.M) != [image_user]:
    wrong(f"the volumes are not of the group of the image's user, {image_user}")

try:
    import helm_python
except ImportError:
    helm_python = None
helm = shutil.which("helm")


def lint():
    """What `helm lint --strict` refuses, except that a chart without an icon is good."""
    if helm:
        done = subprocess.run([helm, "lint", "--strict", chart], capture_output=True, text=True)
        return [] if done.returncode == 0 else [done.stdout + done.stderr]
    found = helm_python.lint(chart)
    warning = 2
    return found["errors"] + [m["error"] for m in found["messages"] if m["severity"] >= warning]


def render(settings):
    """The manifests with these settings, by file."""
    if helm:
        options = ["--set", settings] if settings else []
        done = subprocess.run([helm, "template", "core", chart, *options], capture_output=True, text=True)
        if done.returncode != 0:
            wrong(done.stderr)
        return done.stdout.split("\n---\n")
    with helm_python.Chart.load(chart) as loaded:
        files = loaded.render(helm_python.parse_set_string(settings) if settings else {}, name="core", namespace="default")
    return [text for name, text in files.items() if name.endswith(".yaml") and text.strip()]


if not helm and not helm_python:
    body = read("values.yaml").split("\nconfiguration:\n")[1].split("\n\n")[0]
    check_configuration("\n".join(line[2:] for line in body.splitlines()))
    print("without helm lint (Helm is not installed)")
    sys.exit()

found = lint()
if found:
    wrong("; ".join(found))
for settings in ("", "persistence.existingClaim=mine", "hostNetwork=false,otlp.endpoint=http://collector:4318,persistence.existingClaim=mine,key.existingSecret=my-key"):
    documents = render(settings)
    kinds = sorted(re.search(r"^kind: (\w+)$", d, re.M).group(1) for d in documents if "kind:" in d)
    expected = ["Secret", "Service", "StatefulSet"] if "existingClaim" in settings else ["Secret", "Secret", "Service", "StatefulSet"]
    if kinds != expected:
        wrong(f"the chart renders {kinds}")
    stateful = next(d for d in documents if "kind: StatefulSet" in d)
    is_on_host = "hostNetwork: true" in stateful
    if "existingClaim=mine" in settings and "claimName: mine" not in stateful or "hostNetwork=false" in settings and is_on_host:
        wrong(f"the settings {settings} are not in the StatefulSet")
    # What any client of the API can hold up must not restart a healthy core.
    if "httpGet" in stateful or "tcpSocket" in stateful or not re.search(r'livenessProbe:\s+exec:\s+command:[^a-z]+/usr/bin/whimbrel[^a-z]+unit\b', stateful):
        wrong("liveness does not ask the unit's manager")
    key = re.search(r"^  whimbrel\.key: (\S+)$", "\n".join(documents), re.M)
    if "existingSecret" in settings:
        if key or "secretName: my-key" not in stateful:
            wrong("the subscribers' key is not that of the Secret that was named")
    elif "existingClaim" in settings:
        if key:
            wrong("the chart makes a new key for a volume that has one")
    elif not key or not re.fullmatch("[0-9a-f]{64}", base64.b64decode(key.group(1)).decode()):
        wrong("the chart makes no key for the subscribers")
    if "CREDENTIALS_DIRECTORY" not in stateful or "mountPath: /run/credentials/whimbrel" not in stateful:
        wrong("the subscribers' key is not mounted where the core looks for it")
    secret = next(d for d in documents if "whimbrel.yaml: |" in d)
    body = secret.split("whimbrel.yaml: |\n")[1]
    check_configuration("\n".join(line[4:] for line in body.splitlines()))
print("linted and rendered")
