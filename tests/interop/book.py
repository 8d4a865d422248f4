#!/usr/bin/env python3
"""Runs the commands of the book: book.py [--selftest] [PAGE...]. WHIMBREL names the core's program; those of the lab and the broker are beside it.

A block of commands (```sh) in a page of docs/SUMMARY.md stands below a comment that says what becomes of it:
  <!-- run -->                                           it runs, and must succeed
  <!-- run, prints: TEXT -->                             the same, and TEXT is in its output
  <!-- run in the background until it prints: TEXT -->   it runs until the end of the page
  <!-- run in HOST … -->                                 the same in that folder, and in the namespace of that name that `hosts` has made
  <!-- not run: REASON -->                               it needs what is not there: a radio, systemd, another host
  <!-- prepare: COMMANDS -->                             what the page takes for granted; runs and is not shown

The blocks of a page run in order in one shell, in a folder and in namespaces of their own: network, mounts (with another /etc, /run and
/var/lib), processes. `./x run` and `./x demo` start the programs under test; there is no `target/quick`.
"""
import concurrent.futures
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
# What the commands use beside the program.
TOOLS = ["ip", "ping", "curl", "openssl", "etcd"]
# A page that takes longer hangs: the slowest takes some ten seconds on a busy machine.
PAGE_SECONDS_MAX = 120
MARKS = r"<!--\s*(run|prepare|not run)((?: in (?!the )[a-z0-9]+)?)(, prints:| in the background until it prints:|:|)\s*(.*?)\s*-->"

PRELUDE = r"""
set -eo pipefail
export tmp PATH HOME=$PWD
mount -t tmpfs none "$tmp/etc"
mkdir "$tmp/etc/upper" "$tmp/etc/work"
mount -t overlay none -o "lowerdir=/etc,upperdir=$tmp/etc/upper,workdir=$tmp/etc/work" /etc
mount -t tmpfs none /run
mkdir -p /run/netns /etc/netns
mount -t tmpfs none /var/lib
ip link set lo up
exec 3>&1
block="its start"
fail() { echo "WRONG: $block: $1" >&3; block=; exit 1; }
ended() { # a block of commands has failed, whose output is still redirected
  local rc=$?
  [ $rc != 0 ] && [ -n "$block" ] || return 0
  tail -n 25 "$tmp/out" >&3 2>/dev/null || true
  echo "WRONG: $block: exit status $rc" >&3
}
trap ended EXIT
hosts() { # hosts NAME=ADDRESS...: network namespaces on one Ethernet, which this one is on at 192.0.2.100; each with a folder
  local host
  ip link add ethernet type bridge
  ip addr add 192.0.2.100/24 dev ethernet
  ip link set ethernet up
  for host; do
    mkdir -p "${host%=*}"
    ip netns add "${host%=*}"
    ip link add "to-${host%=*}" type veth peer name eth0 netns "${host%=*}"
    ip link set "to-${host%=*}" up master ethernet
    ip -n "${host%=*}" addr add "${host#*=}/24" dev eth0
    ip -n "${host%=*}" link set eth0 up
    ip -n "${host%=*}" link set lo up
  done
}
on() { # on HOST COMMAND...
  local inside=()
  [ ! -e "/run/netns/$1" ] || inside=(ip netns exec "$1")
  (cd "$1" && exec "${inside[@]}" "${@:2}")
}
in_background() { # in_background TEXT COMMAND...
  local text=$1 out child
  shift
  out=$(mktemp -p "$tmp")
  "$@" >"$out" 2>&1 &
  child=$!
  for _ in $(seq 600); do
    ! grep -qF -- "$text" "$out" || return 0
    kill -0 $child 2>/dev/null || break
    sleep 0.05
  done
  tail -n 15 "$out" >&3
  fail "it did not print: $text"
}
"""

X = """#!/bin/sh
case $1 in
  run) exec whimbrel "$@" ;;
  demo) exec whimbrel-lab "$@" ;;
  lab) shift; exec whimbrel-lab "$@" ;;
  *) echo "./x $1 is not run by this test"; exit 1 ;;
esac
"""


def pages_of_the_book():
    with open(f"{ROOT}/docs/SUMMARY.md") as file:
        return ["docs/" + page for page in re.findall(r"\]\(([^)]+\.md)\)", file.read())]


def blocks(text):
    """(line, mark, host, kind, argument, commands) of each block; the mark is None where it has none."""
    found, pending, at, lines = [], None, 0, text.split("\n")
    while at < len(lines):
        line = lines[at]
        if line.startswith("<!--"):
            comment, begin = line, at
            while "-->" not in lines[at]:
                at += 1
                comment += "\n" + lines[at]
            mark = re.fullmatch(MARKS, comment.strip(), re.S)
            if mark and mark.group(1) == "prepare":
                found.append((begin + 1, "prepare", "", "", "", mark.group(4)))
            elif mark:
                pending = mark.groups()
        elif line.startswith("```"):
            begin = at
            at += 1
            while not lines[at].startswith("```"):
                at += 1
            if line == "```sh":
                mark, host, kind, argument = pending or (None, "", "", "")
                found.append((begin + 1, mark, host.removeprefix(" in "), kind, argument, "\n".join(lines[begin + 1 : at])))
            pending = None
        elif line.strip():
            pending = None
        at += 1
    return found


def script(page, found):
    parts = [PRELUDE]
    for line, mark, host, kind, argument, commands in found:
        if mark not in ("run", "prepare"):
            continue
        parts.append(f"block={shlex.quote(f'{page}:{line}')}")
        shell = f"{f'on {host} ' if host else ''}bash -ec {shlex.quote(commands)}"
        if "background" in kind:
            parts.append(f"in_background {shlex.quote(argument)} {shell}")
            continue
        parts.append(f'{shell if host else f"{{{chr(10)}{commands}{chr(10)}}}"} >"$tmp/out" 2>&1')
        if "prints" in kind:
            printed = f'grep -qF -- {shlex.quote(argument)} "$tmp/out"'
            parts.append(f'{printed} || {{ cat "$tmp/out" >&3; fail {shlex.quote("it does not print: " + argument)}; }}')
    return "\n".join(parts) + "\n"


def run(page, text):
    """None, or what is wrong with a page."""
    found = blocks(text)
    unmarked = [str(line) for line, mark, *_ in found if mark is None]
    if unmarked:
        return f"WRONG: {page}: the blocks at lines {', '.join(unmarked)} have no mark"
    if not any(mark == "run" for _, mark, *_ in found):
        return None
    with tempfile.TemporaryDirectory() as tmp:
        work = os.path.join(tmp, "work")
        programs = os.path.join(tmp, "bin")
        os.mkdir(work)
        os.mkdir(programs)
        for name in ("whimbrel", "whimbrel-lab", "whimbrel-broker"):
            os.symlink(os.path.join(os.path.dirname(os.environ["WHIMBREL"]), name), os.path.join(programs, name))
        with open(os.path.join(work, "x"), "w") as file:
            file.write(X)
        os.chmod(os.path.join(work, "x"), 0o755)
        for name in ("packaging", "docs", "tests"):
            os.symlink(f"{ROOT}/{name}", os.path.join(work, name))
        os.mkdir(os.path.join(tmp, "etc"))
        with open(os.path.join(tmp, "script"), "w") as file:
            file.write(script(page, found))
        env = {**os.environ, "tmp": tmp, "PATH": f"{programs}:{os.environ['PATH']}"}
        inside = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", os.path.join(tmp, "script")]
        try:
            done = subprocess.run(inside, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=PAGE_SECONDS_MAX, errors="replace")
        except subprocess.TimeoutExpired:
            return f"WRONG: {page}: it takes more than {PAGE_SECONDS_MAX} s"
        return None if done.returncode == 0 else (done.stdout + done.stderr)[-4000:]


def selftest():
    """Faults that are planted are found."""
    good = "<!-- run, prints: two -->\n```sh\necho one two\n```\n"
    for text, expected in [
        (good, None),
        ("```sh\ntrue\n```\n", "have no mark"),
        ("<!-- run -->\n```sh\nfalse\ntrue\n```\n", "page.md:2: exit status 1"),
        (good.replace("one two", "one"), "it does not print: two"),
        ("<!-- run -->\n```sh\nwhimbrel nonsense\n```\n", "exit status 2"),
        ("<!-- run in the background until it prints: x -->\n```sh\ntrue\n```\n", "it did not print: x"),
        ("<!-- not run: a radio -->\n```sh\nfalse\n```\n", None),
        ("<!-- prepare:\nv=1\n-->\n<!-- run -->\n```sh\ntest \"$v\" = 1\n```\n", None),
    ]:
        result = run("page.md", text)
        if (result is None) != (expected is None) or expected and expected not in result:
            sys.exit(f"WRONG: {text!r} gives {result!r}, not {expected!r}")
    print("planted faults are found")


def main():
    program = os.environ.get("WHIMBREL", "")
    if not os.access(program, os.X_OK):
        print("no program to test: WHIMBREL does not name one")
        sys.exit(77)
    os.environ["WHIMBREL"] = os.path.realpath(program)
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        print("the book's commands need root and namespaces of their own")
        sys.exit(77)
    if sys.argv[1:2] == ["--selftest"]:
        return selftest()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f"the book's commands need {', '.join(missing)}")
        sys.exit(77)
    pages = sys.argv[1:] or pages_of_the_book()
    texts = {page: open(os.path.join(ROOT, page)).read() for page in pages}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wrong = [w for w in pool.map(lambda page: run(page, texts[page]), pages) if w]
    for text in wrong:
        print(text)
    marks = [mark for text in texts.values() for _, mark, *_ in blocks(text)]
    print(f"{marks.count('run')} blocks of commands ran, {marks.count('not run')} say why they cannot")
    sys.exit(1 if wrong else 0)


main()
