#!/usr/bin/env python3
"""Writes hierarchy.txt: vectors and keys of 5G-AKA from an implementation that shares no code with the crate.

HMAC and SHA-256 are those of Python's standard library, AES that of the package `cryptography`; the S strings are
those of TS 33.501 Annex A, the block functions those of TS 35.206. Run it by hand: python3 hierarchy.py > hierarchy.txt
"""

import hashlib
import hmac
import random

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def aes(key, block):
    e = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return e.update(block) + e.finalize()


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def milenage(k, opc, rand, sqn, amf):
    temp = aes(k, xor(rand, opc))
    in1 = xor((sqn + amf) * 2, opc)
    out1 = xor(aes(k, xor(temp, in1[8:] + in1[:8])), opc)

    def out(octets, c):
        x = xor(temp, opc)
        return xor(aes(k, xor(x[octets:] + x[:octets], bytes(15) + bytes([c]))), opc)

    out2 = out(0, 1)
    return {"mac_a": out1[:8], "res": out2[8:], "ck": out(4, 2), "ik": out(8, 4), "ak": out2[:6]}


def kdf(key, fc, *parameters):
    s = bytes([fc]) + b"".join(p + len(p).to_bytes(2, "big") for p in parameters)
    return hmac.new(key, s, hashlib.sha256).digest()


FIELDS = (
    "k opc rand sqn amf plmn supi abba count pci arfcn "
    "autn xres* hxres* kausf kseaf kamf "
    "nea1 nea2 nea3 nia1 nia2 nia3 kgnb kn3iwf nh1 nh2 kamf_mobility kamf_handover "
    "horizontal vertical rrcenc rrcint upenc upint"
).split()


def case(r, plmn, supi):
    k, opc, rand = r.randbytes(16), r.randbytes(16), r.randbytes(16)
    sqn, amf, abba = r.randbytes(6), bytes([0x80, 0]), bytes(2)
    count, pci, arfcn = bytes([0]) + r.randbytes(3), r.randbytes(2), r.randbytes(3)
    mcc, mnc = plmn.split("/")
    name = f"5G:mnc{mnc.zfill(3)}.mcc{mcc}.3gppnetwork.org".encode()
    m = milenage(k, opc, rand, sqn, amf)
    concealed = xor(sqn, m["ak"])
    both = m["ck"] + m["ik"]
    kausf = kdf(both, 0x6A, name, concealed)
    xres = kdf(both, 0x6B, name, rand, m["res"])[16:]
    kseaf = kdf(kausf, 0x6C, name)
    kamf = kdf(kseaf, 0x6D, supi.encode(), abba)
    kgnb = kdf(kamf, 0x6E, count, bytes([1]))
    nh1 = kdf(kamf, 0x6F, kgnb)
    alg = lambda key, kind, identity: kdf(key, 0x69, bytes([kind]), bytes([identity]))[16:]
    values = [
        k, opc, rand, sqn, amf, plmn, supi, abba, count, pci, arfcn,
        concealed + amf + m["mac_a"], xres, hashlib.sha256(rand + xres).digest()[16:], kausf, kseaf, kamf,
        *(alg(kamf, 1, i) for i in (1, 2, 3)), *(alg(kamf, 2, i) for i in (1, 2, 3)),
        kgnb, kdf(kamf, 0x6E, count, bytes([2])), nh1, kdf(kamf, 0x6F, nh1),
        kdf(kamf, 0x72, bytes([0]), count), kdf(kamf, 0x72, bytes([1]), count),
        kdf(kgnb, 0x70, pci, arfcn), kdf(nh1, 0x70, pci, arfcn),
        *(alg(kgnb, kind, 2) for kind in (3, 4, 5, 6)),
    ]
    assert len(values) == len(FIELDS)
    return " ".join(v if isinstance(v, str) else v.hex() for v in values)


def main():
    r = random.Random(33501)
    print("# 5G-AKA vectors and the keys under them, written by hierarchy.py; in hexadecimal but for PLMN and SUPI.")
    print("# name", *FIELDS)
    networks = [("999/70", "999700000000001"), ("001/01", "001010123456789"), ("310/410", "31041012345678")]
    for i in range(12):
        print(f"case{i}", case(r, *networks[i % 3]))


main()
