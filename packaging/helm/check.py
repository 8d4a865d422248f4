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


# What kubelet gives a pod: its addresses, and those of the homes' Services.
ENVIRONMENT = {"POD_IP": "192.0.2.1", "HOST_IP": "192.0.2.1"} | {f"CORE_{home}_SERVICE_HOST": f"192.0.2.{10 + home}" for home in range(3)}


def check_configuration(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([program, "check", file.name], capture_output=True, text=True, env=os.environ | ENVIRONMENT)
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
    """The manifests with these settings."""
    if helm:
        options = ["--set", settings] if settings else []
        done = subprocess.run([helm, "template", "core", chart, *options], capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(done.stderr)
        files = [done.stdout]
    else:
        with helm_python.Chart.load(chart) as loaded:
            try:
                rendered = loaded.render(helm_python.parse_set_string(settings) if settings else {}, name="core", namespace="default")
            except helm_python.HelmError as error:
                raise ValueError(str(error)) from error
        files = [text for name, text in rendered.items() if name.endswith(".yaml")]
    documents = [document for file in files for document in re.split(r"^---$", file, flags=re.M)]
    return [document for document in documents if re.search(r"^kind: ", document, re.M)]


def kind_of(document):
    return re.search(r"^kind: (\w+)$", document, re.M).group(1)


def name_of(document):
    return re.search(r"^metadata:\n  name: (\S+)$", document, re.M).group(1)


if not helm and not helm_python:
    body = read("values.yaml").split("\nconfiguration:\n")[1].split("\n\n")[0]
    check_configuration("\n".join(line[2:] for line in body.splitlines()))
    print("without helm lint (Helm is not installed)")
    sys.exit()

found = lint()
if found:
    wrong("; ".join(found))

ONE = ["PodDisruptionBudget", "Secret", "Service", "Service", "StatefulSet"]
# What each home has to have of its own; another program's rule on tracking areas does not matter here.
HOMES = "replicas=2,homesMax=3"
UPF = "upfs[0].name=east,upfs[0].address=192.0.2.3:8805,upfs[0].node=n1,upfPeers={10.0.0.0/8}"
CASES = {
    "": ["Secret", *ONE],
    "persistence.existingClaim=mine": ONE,
    "hostNetwork=true,otlp.endpoint=http://collector:4318,persistence.existingClaim=mine,key.existingSecret=my-key": ONE,
    HOMES: ["Secret", "Secret", "Service", "Service", *ONE],
    HOMES + ",postgres.url=postgresql://whimbrel@db.example/whimbrel,postgres.existingSecret=db,drain.enabled=true,partition=1": ["Secret", "Secret", "Service", "Service", *ONE],
    UPF + ",configuration.n2.sctp=udp,n2Service.type=LoadBalancer,networkPolicy.enabled=true,serviceMonitor.enabled=true": [
        "NetworkPolicy", "Secret", "Service", "ServiceMonitor", "StatefulSet", *ONE],
}
for settings, expected in CASES.items():
    documents = render(settings)
    kinds = sorted(kind_of(d) for d in documents)
    if kinds != sorted(expected):
        wrong(f"with {settings!r} the chart renders {kinds}")
    stateful = next(d for d in documents if kind_of(d) == "StatefulSet" and name_of(d) == "core")
    is_on_host = "hostNetwork: true" in stateful
    if "existingClaim=mine" in settings and "claimName: mine" not in stateful or is_on_host != ("hostNetwork=true" in settings):
        wrong(f"the settings {settings} are not in the StatefulSet")
    # What any client of the API can hold up must not restart a healthy core.
    if "httpGet" in stateful or "tcpSocket" in stateful or not re.search(r'livenessProbe:\s+exec:\s+command:[^a-z]+/usr/bin/whimbrel[^a-z]+unit\b', stateful):
        wrong("liveness does not ask the unit's manager")
    # A capability is given for raw SCTP and for TUN devices alone; without them the core is no root.
    capabilities = set(re.findall(r"^ +add: \[(.*)\]$", stateful, re.M))
    needs_none = "upfs" in settings and "sctp=udp" in settings
    if capabilities != (set() if needs_none else {"NET_ADMIN, NET_RAW"}) or needs_none != ("runAsNonRoot: true" in stateful) or needs_none == ("/dev/net/tun" in stateful):
        wrong(f"with {settings!r} the core has the capabilities {capabilities}")
    if "drop: [ALL]" not in stateful or "readOnlyRootFilesystem: true" not in stateful:
        wrong("a capability is not dropped, or the root file system can be written")
    if any("httpGet" in d or "tcpSocket" in d or "livenessProbe" not in d for d in documents if kind_of(d) == "StatefulSet"):
        wrong("a pod has no probe that asks its program")
    grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", stateful).group(1))
    if ("preStop" in stateful) != ("drain" in settings) or grace != (180 if "drain" in settings else 60):
        wrong(f"a home has {grace} s to end")
    key = re.search(r"^  whimbrel\.key: (\S+)$", "\n".join(documents), re.M)
    if "existingSecret=my-key" in settings:
        if key or "secretName: my-key" not in stateful:
            wrong("the subscribers' key is not that of the Secret that was named")
    elif "existingClaim" in settings:
        if key:
            wrong("the chart makes a new key for a volume that has one")
    elif not key or not re.fullmatch("[0-9a-f]{64}", base64.b64decode(key.group(1)).decode()):
        wrong("the chart makes no key for the subscribers")
    if "CREDENTIALS_DIRECTORY" not in stateful or "mountPath: /run/credentials/whimbrel" not in stateful:
        wrong("the subscribers' key is not mounted where the core looks for it")
    secret = next(d for d in documents if kind_of(d) == "Secret" and name_of(d) == "core")
    configurations = {}
    for name, body in re.findall(r"^  (\S+)\.yaml: \|\n((?:    .*\n|\n)*)", secret, re.M):
        configurations[name] = "\n".join(line[4:] for line in body.splitlines())
        check_configuration(configurations[name])
    homes = ["core-0", "core-1", "core-2"] if settings.startswith(HOMES) else ["core-0"]
    if sorted(configurations) != sorted(homes + (["core-upf-east-0"] if "upfs" in settings else [])):
        wrong(f"there are configurations of {sorted(configurations)}")
    for ordinal, home in enumerate(homes):
        text = configurations[home]
        if f"pointer: {ordinal}\n" not in text.split("api:")[0] or f"name: {home}\n" not in text.split("api:")[0]:
            wrong(f"the AMF of {home} has another name or pointer")
        # The AMF with the lower pointer connects.
        peers = re.findall(r"\$\{CORE_(\d)_SERVICE_HOST\}:7390", text)
        if peers != [str(n) for n in range(ordinal + 1, len(homes))]:
            wrong(f"{home} connects to the homes {peers}")
        if "postgres" in settings and f"sqn_slot: {ordinal}\n" not in text:
            wrong(f"{home} has not an sqn_slot of its own")

for settings, why in {"replicas=65": "64 AMFs", "replicas=33,postgres.url=postgresql://h/d": "32 homes", "replicas=2,persistence.existingClaim=mine": "one home"}.items():
    try:
        render(settings)
    except ValueError as error:
        if why in str(error):
            continue
    wrong(f"the chart takes {settings}")
print("linted and rendered")
