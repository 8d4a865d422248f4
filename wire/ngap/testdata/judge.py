#!/usr/bin/env python3
"""Judges NGAP encodings with pycrate (PyPI `pycrate`), an independent implementation of aligned PER.

Reads lines `HEX` (an NGAP-PDU) or `TYPE HEX` (a type of TS 38.413 in Rust case, such as
`PathSwitchRequestTransfer`) from stdin. Each must decode, use all its octets, hold no IE that its message does not
define, and encode to the same octets again. Prints what fails and how many were judged; exits 1 if any failed.
"""

import re
import sys

from pycrate_asn1dir import NGAP


def key(name):
    """One spelling for the Rust and the ASN.1 form of a type's name."""
    return re.sub("[^a-z0-9]", "", name.lower())


TYPES = {key(n): o for n, o in vars(NGAP.NGAP_IEs).items() if hasattr(o, "from_aper")}
TYPES[key("NGAP-PDU")] = NGAP.NGAP_PDU_Descriptions.NGAP_PDU

# Transfers are judged on their own: inside a message they are octets, as they are for an AMF.
for module in (NGAP.NGAP_IEs, NGAP.NGAP_PDU_Contents):
    stack = [o for o in vars(module).values() if hasattr(o, "TYPE")]
    seen = set()
    while stack:
        o = stack.pop()
        if id(o) in seen:
            continue
        seen.add(id(o))
        if o.TYPE == "OCTET STRING" and getattr(o, "_const_cont", None) is not None:
            o._const_cont = None
        content = getattr(o, "_cont", None)
        if isinstance(content, dict) or hasattr(content, "values"):
            stack.extend(c for c in content.values() if hasattr(c, "TYPE"))
        elif hasattr(content, "TYPE"):
            stack.append(content)

# IEs that only pass through an AMF hold octets that are not ours: they do not decode when made at random.
OPAQUE = {6, 7, 48, 49, 62, 63}


def unknown(value, path=""):
    """Paths of elements that pycrate kept undecoded because their message does not define them."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from unknown(v, f"{path}.{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from unknown(v, f"{path}[{i}]")
    elif isinstance(value, tuple):
        if len(value) == 2 and isinstance(value[0], str):
            if value[0].startswith("_unk"):
                yield path
            else:
                yield from unknown(value[1], f"{path}.{value[0]}")


def judge(kind, octets):
    pdu = TYPES[key(kind)]
    if kind == "NGAP-PDU" and len(octets) > 1 and octets[1] in OPAQUE:
        return None
    try:
        pdu.from_aper(octets)
        value = pdu.get_val()
        lost = list(unknown(value))
        if lost:
            return f"undefined elements {lost}"
        again = pdu.to_aper()
    except Exception as e:  # pycrate raises many kinds
        return f"{type(e).__name__}: {e}"
    if again != octets:
        return f"encodes as {again.hex()}"
    return None


def main():
    judged = failed = 0
    for line in sys.stdin:
        fields = line.split()
        if not fields:
            continue
        kind, text = fields if len(fields) == 2 else ("NGAP-PDU", fields[0])
        judged += 1
        fault = judge(kind, bytes.fromhex(text))
        if fault:
            failed += 1
            print(f"{kind} {text[:400]}\n  {fault[:1000]}")
    print(f"{judged} judged, {failed} failed")
    return 1 if failed or not judged else 0


if __name__ == "__main__":
    sys.exit(main())
