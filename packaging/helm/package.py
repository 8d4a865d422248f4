#!/usr/bin/env python3
"""Writes the chart as the archive that `helm install` takes: package.py CHART FOLDER. The same chart gives the same octets."""
import gzip
import os
import re
import sys
import tarfile

chart, out = sys.argv[1:3]
with open(os.path.join(chart, "Chart.yaml")) as file:
    text = file.read()
name, version = (re.search(rf"^{key}: (\S+)$", text, re.M).group(1) for key in ("name", "version"))
path = os.path.join(out, f"{name}-{version}.tgz")


def plain(info):
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


with open(path, "wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
    with tarfile.open(fileobj=zipped, mode="w") as archive:
        for folder, folders, files in os.walk(chart):
            folders.sort()
            for found in sorted(files):
                source = os.path.join(folder, found)
                archive.add(source, os.path.join(name, os.path.relpath(source, chart)), filter=plain)
print(path)
