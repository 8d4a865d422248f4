#!/usr/bin/env python3
"""Writes `vectors.txt`: messages and transfers of TS 38.413 as pycrate (PyPI `pycrate` 0.8.1) encodes them.

Of each type three values are made: with nothing optional, with everything, and with a random half. Lines are
`TYPE<tab>HEX<tab>JSON`; the JSON lists the named scalar leaves of the value (`"prioritylevelarp:7"`, in the order of the
encoding, spelled without case and punctuation) that a decoder must have found. `(N)` in HEX stands for N zero octets. What the Rust crate leaves to the
criticality rules is left out: which IEs and extensions it knows is read from its declarations.

Usage: generate.py > vectors.txt
"""

import json
import pathlib
import random
import re
import sys

from pycrate_asn1dir import NGAP

R = random.Random(38413)
SRC = pathlib.Path(__file__).parent.parent / "src"


def key(name):
    return re.sub("[^a-z0-9]", "", name.lower())


def declarations():
    """The ids of IEs and extensions by type, from `id criticality presence name:` lines of the Rust source."""
    known = {}
    for path in SRC.glob("*/*.rs"):
        current = None
        for line in path.read_text().splitlines():
            if m := re.match(r"\s*pub (?:struct|enum) (\w+)", line):
                current = known.setdefault(key(m[1]), set())
            elif (m := re.match(r"\s*(\d+) (reject|ignore|notify) \w+", line)) and current is not None:
                current.add(int(m[1]))
    return known


KNOWN = declarations()
# Held by Rust types of their own, whose print is not the bare number.
OWN_TYPES = {"AMF-UE-NGAP-ID", "RAN-UE-NGAP-ID", "PDUSessionID", "QosFlowIdentifier", "FiveQI"}
# Carried on unread by an AMF, so held as octets.
OPAQUE = {
    "SONConfigurationTransfer",
    "EN-DCSONConfigurationTransfer",
    "IntersystemSONConfigurationTransfer",
    "RANStatusTransfer-TransparentContainer",
    "EarlyStatusTransfer-TransparentContainer",
}


def named(name):
    for module in (NGAP.NGAP_IEs, NGAP.NGAP_PDU_Contents, NGAP.NGAP_CommonDataTypes, NGAP.NGAP_Containers):
        if (o := getattr(module, name.replace("-", "_"), None)) is not None:
            return o
    raise KeyError(name)


NAMES = {o._val: o._name[3:] for n, o in vars(NGAP.NGAP_Constants).items() if n.startswith("id_")}


def reference(o):
    return o._typeref.called[1] if o._typeref is not None else None


def table(o):
    content = o._cont._cont if o.TYPE == "SEQUENCE OF" else o._cont
    t = content["id"]._const_tab
    return list(t._val.root) if t is not None and t._val is not None else []


class Build:
    """Makes one value. `wants()` decides of each optional element."""

    def __init__(self, wants):
        self.wants = wants
        self.leaves = []
        self.depth = 0

    def value(self, o, owner, leaf=None):
        """A value of the type `o`; `owner` is the name of the nearest named type around it."""
        name = reference(o)
        owner = name if name and name not in ("ProtocolIE-SingleContainer",) else owner
        if name == "PLMNIdentity":
            d = [R.randrange(10) for _ in range(6)]
            return bytes([d[0] | d[1] << 4, d[2] | R.choice([0xF, d[3]]) << 4, d[4] | d[5] << 4])
        if name == "PDUSessionID":
            return R.randrange(1, 16)
        if name == "TransportLayerAddress":
            n = R.choice([32, 128, 160])
            return (R.getrandbits(n), n)
        kept = len(self.leaves)
        v = getattr(self, o.TYPE.lower().replace(" ", "_"))(o, owner)
        if name in OPAQUE:
            del self.leaves[kept:]
        if leaf and name not in OWN_TYPES:
            if o.TYPE == "INTEGER":
                self.leaves.append(f"{key(leaf)}:{v}")
            elif o.TYPE == "ENUMERATED":
                self.leaves.append(f"{key(leaf)}:{key(v)}")
        return v

    def integer(self, o, owner):
        ranges = [(r, r) if isinstance(r, int) else (r.lb, r.ub) for r in o._const_val.root]
        lo, hi = R.choice(ranges)
        if owner == "BitRate" and R.random() < 0.2:
            return R.randrange(hi + 1, 2**62)
        return R.choice([lo, hi, R.randint(lo, hi)])

    def enumerated(self, o, owner):
        return R.choice(list(o._root) + list(o._ext or []))

    def boolean(self, o, owner):
        return R.random() < 0.5

    def size(self, o, most):
        c = o._const_sz
        if c is None or c.ub is None:
            return R.randrange(1, most)
        return R.choice([c.lb, min(c.ub, c.lb + most), R.randint(c.lb, min(c.ub, c.lb + most))])

    def octet_string(self, o, owner):
        inner = getattr(o, "_const_cont", None)
        if inner is not None:
            # A transfer's leaves are octets to the message: they are judged in vectors of their own.
            inner = named(reference(inner)) if reference(inner) else inner
            inner.set_val(Build(self.wants).value(inner, reference(inner) or inner._name))
            return inner.to_aper()
        return R.randbytes(self.size(o, 12))

    def bit_string(self, o, owner):
        n = self.size(o, 10)
        return (R.getrandbits(n) if n else 0, n)

    def printablestring(self, o, owner):
        return "".join(R.choices("abcXYZ019 -.", k=self.size(o, 12)))

    visiblestring = printablestring

    def utf8string(self, o, owner):
        return "Wħimbrel" + str(R.randrange(100))

    def sequence_of(self, o, owner):
        c = o._const_sz
        n = min(c.ub, c.lb + R.randrange(3)) if self.depth < 8 else c.lb
        self.depth += 1
        items = [self.value(o._cont, owner + "-Item") for _ in range(n)]
        self.depth -= 1
        return items

    def sequence(self, o, owner):
        v = {}
        alone = len([k for k in o._cont if not k.startswith("iE-Extension")]) == 1
        self.depth += 1
        for k, c in o._cont.items():
            if k.startswith("iE-Extension"):
                extensions = [e for e in table(c) if e["id"] in KNOWN.get(key(owner), ()) and self.wants()]
                if extensions:
                    v[k] = [self.extension(e) for e in extensions]
            elif k == "protocolIEs":
                v[k] = [self.ie(e) for e in table(c) if self.takes(e, owner)]
            elif k not in o._root_opt or self.wants():
                v[k] = self.value(c, f"{owner}-{k}", None if alone else k)
        self.depth -= 1
        return v

    def takes(self, e, owner):
        return e["id"] in KNOWN[key(owner)] and (e["presence"] == "mandatory" or self.wants())

    def ie(self, e):
        t = e["Value"]
        v = self.value(t, NAMES[e["id"]], NAMES[e["id"]])
        return {"id": e["id"], "criticality": e["criticality"], "value": (reference(t) or t.TYPE, v)}

    def extension(self, e):
        t = e["Extension"]
        v = self.value(t, NAMES[e["id"]], NAMES[e["id"]])
        return {"id": e["id"], "criticality": e["criticality"], "extensionValue": (reference(t) or t.TYPE, v)}

    def choice(self, o, owner):
        roots = [k for k in o._cont if k != "choice-Extensions"]
        extensions = []
        if "choice-Extensions" in o._cont:
            extensions = [e for e in table(o._cont["choice-Extensions"]) if e["id"] in KNOWN.get(key(owner), ())]
        pick = R.choice(roots + extensions)
        if isinstance(pick, dict):
            return ("choice-Extensions", self.ie(pick))
        return (pick, self.value(o._cont[pick], f"{owner}-{pick}"))


def vector(name, o, wrap):
    for wants in (lambda: False, lambda: True, lambda: R.random() < 0.5):
        b = Build(wants)
        v = b.value(o, name)
        pdu, v = wrap(v)
        pdu.set_val(v)
        octets = pdu.to_aper()
        print(name, octets.hex(), json.dumps(b.leaves, separators=(",", ":")), sep="\t")


def procedures():
    for n, o in vars(NGAP.NGAP_PDU_Descriptions).items():
        if n[0].islower() and getattr(o, "TYPE", None) == "CLASS" and "procedureCode" in (o._val or {}):
            for field, choice in (
                ("InitiatingMessage", "initiatingMessage"),
                ("SuccessfulOutcome", "successfulOutcome"),
                ("UnsuccessfulOutcome", "unsuccessfulOutcome"),
            ):
                if field in o._val and key(reference(o._val[field])) in KNOWN:
                    yield o._val["procedureCode"], choice, o._val["criticality"], reference(o._val[field])


def main():
    pdu = NGAP.NGAP_PDU_Descriptions.NGAP_PDU
    for code, choice, criticality, name in sorted(procedures()):

        def wrap(v):
            return pdu, (choice, {"procedureCode": code, "criticality": criticality, "value": (name, v)})

        vector(name, named(name), wrap)
    for n in sorted(vars(NGAP.NGAP_IEs)):
        if n.endswith("Transfer") and key(n) in KNOWN:
            o = named(n)
            vector(n, o, lambda v: (o, v))
    # Fragments (X.691 §11.9.3.8): an octet string, and so each open type around it, of 70000 octets.
    for n in (16383, 16384, 70000):
        ies = [{"id": 38, "criticality": "reject", "value": ("NAS-PDU", bytes(n))}]
        ies.insert(0, {"id": 85, "criticality": "reject", "value": ("RAN-UE-NGAP-ID", 1)})
        ies.insert(0, {"id": 10, "criticality": "reject", "value": ("AMF-UE-NGAP-ID", 1)})
        value = ("UplinkNASTransport", {"protocolIEs": ies})
        pdu.set_val(("initiatingMessage", {"procedureCode": 46, "criticality": "ignore", "value": value}))
        runs = re.split(b"(\0{100,})", pdu.to_aper())
        text = "".join(f"({len(p)})" if i % 2 else p.hex() for i, p in enumerate(runs))
        print("UplinkNASTransport", text, "[]", sep="\t")


if __name__ == "__main__":
    sys.exit(main())
