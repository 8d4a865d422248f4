#!/usr/bin/env python3
"""Writes an OCI image layout of a program: image.py PROGRAM FOLDER [--tag TAG]. Needs no network, no privileges and no daemon.

The image has one layer: the program, the shared libraries that it names, and the files that it needs of a system. The same program gives
the same octets. `umoci`, `skopeo`, `podman` and `crane` read the folder (OCI image specification 1.0).
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import tempfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
USER = 10001
# The same for each build: tools want a time, and the same program gives the same image.
CREATED = "1970-01-01T00:00:00Z"

CONFIGURATION = """\
# Configuration of the image; mount another one over it. `whimbrel config` prints the keys that an operator sets.
store:
  path: /var/lib/whimbrel/whimbrel.db
  key_file: /var/lib/whimbrel/whimbrel.key
unit:
  directory: /run/whimbrel
"""


def libraries(program):
    """The shared libraries of a program, by the paths under which the loader looks for them."""
    output = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    found = []
    for line in output.splitlines():
        words = line.split()
        path = words[2] if "=>" in words and len(words) > 2 else words[0]
        if path.startswith("/"):
            found.append(path)
    return found


def time_zones():
    """The files of the time zone database, which `amf.time_zone` names; without the copies that count leap seconds, or are by another name of the folder."""
    found = []
    for folder, folders, names in os.walk("/usr/share/zoneinfo"):
        folders[:] = sorted(set(folders) - {"posix", "right"})
        paths = (os.path.join(folder, name) for name in sorted(names))
        # Some systems have a link to the host's own zone among them.
        found += [path for path in paths if os.path.isfile(path) and not os.path.realpath(path).startswith("/etc/")]
    return found


def stripped(program):
    """The program without its debugging information."""
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "--strip-debug", "-o", copy.name, program], check=True)
        return copy.read()


def layer(program):
    """A tar archive of the root file system."""
    out = io.BytesIO()
    archive = tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT)
    folders = set()

    def folder(path, mode=0o755, owner=0):
        if path in folders or path == "":
            return
        folder(os.path.dirname(path))
        folders.add(path)
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
        archive.addfile(info)

    def file(path, content, mode=0o644):
        folder(os.path.dirname(path))
        info = tarfile.TarInfo(path)
        info.size, info.mode = len(content), mode
        archive.addfile(info, io.BytesIO(content))

    file("usr/bin/whimbrel", stripped(program), 0o755)
    for path in libraries(program):
        with open(path, "rb") as library:
            file(path.lstrip("/"), library.read(), 0o755)
    file("etc/passwd", f"root:x:0:0::/:/nonexistent\nwhimbrel:x:{USER}:{USER}::/var/lib/whimbrel:/nonexistent\n".encode())
    file("etc/group", f"root:x:0:\nwhimbrel:x:{USER}:\n".encode())
    file("etc/whimbrel/whimbrel.yaml", CONFIGURATION.encode())
    certificates = "/etc/ssl/certs/ca-certificates.crt"
    if os.path.exists(certificates):
        with open(certificates, "rb") as content:
            file(certificates.lstrip("/"), content.read())
    for path in time_zones():
        with open(path, "rb") as content:
            file(path.lstrip("/"), content.read())
    folder("tmp", 0o1777)
    folder("run/whimbrel", 0o700, USER)
    folder("var/lib/whimbrel", 0o700, USER)
    archive.close()
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--tag", default="latest")
    options = parser.parse_args()
    blobs = os.path.join(options.folder, "blobs", "sha256")
    os.makedirs(blobs, exist_ok=True)

    def blob(content, media_type):
        digest = hashlib.sha256(content).hexdigest()
        with open(os.path.join(blobs, digest), "wb") as file:
            file.write(content)
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(content)}

    version = subprocess.run([options.program, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    tar = layer(options.program)
    compressed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, mtime=0, compresslevel=6) as file:
        file.write(tar)
    labels = {
        "org.opencontainers.image.title": "whimbrel",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/whimbrel"],
            "Cmd": ["run", "--config", "/etc/whimbrel/whimbrel.yaml"],
            "WorkingDir": "/var/lib/whimbrel",
            # The specification knows TCP and UDP alone, and podman refuses an image that names a port of SCTP (N2, 38412).
            "ExposedPorts": {"8070/tcp": {}, "2152/udp": {}},
            "Volumes": {"/var/lib/whimbrel": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
        "created": CREATED,
        "history": [{"created": CREATED, "created_by": "packaging/oci/image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config, sort_keys=True).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [blob(compressed.getvalue(), "application/vnd.oci.image.layer.v1.tar+gzip")],
        "annotations": labels,
    }
    entry = blob(json.dumps(manifest, sort_keys=True).encode(), manifest["mediaType"])
    entry["annotations"] = {"org.opencontainers.image.ref.name": options.tag}
    with open(os.path.join(options.folder, "index.json"), "w") as file:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, file)
    with open(os.path.join(options.folder, "oci-layout"), "w") as file:
        json.dump({"imageLayoutVersion": "1.0.0"}, file)
    print(entry["digest"])


if __name__ == "__main__":
    main()
