#!/usr/bin/env python3
"""Writes attach.txt: one attach of SAP, made after MESSAGES.md by code that shares nothing with the crate.

Curves and AES are those of the package `cryptography`; HPKE (RFC 9180), HKDF (RFC 5869) and the messages are written out here. Run it by
hand: python3 attach.py > attach.txt
"""

import hashlib
import hmac
import ipaddress

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def fixed(name, octets=32):
    """Octets that stand for random ones."""
    return sha(b"attach.py ", name.encode())[:octets]


def extract(salt, ikm):
    return hmac.new(salt or bytes(32), ikm, hashlib.sha256).digest()


def expand(prk, info, octets):
    out, block = b"", b""
    while len(out) < octets:
        block = hmac.new(prk, block + info + bytes([len(out) // 32 + 1]), hashlib.sha256).digest()
        out += block
    return out[:octets]


def hkdf(ikm, info, octets, salt=b""):
    return expand(extract(salt, ikm), info, octets)


def public(private):
    return private.public_key().public_bytes(*RAW)


def dh(private, share):
    return private.exchange(X25519PublicKey.from_public_bytes(share))


def hpke_seal(recipient, ephemeral, info, aad, plain):
    """Base mode, sender's side: enc, ciphertext, and the exporter as a function."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"

    def labeled_extract(sid, salt, label, ikm):
        return extract(salt, b"HPKE-v1" + sid + label + ikm)

    def labeled_expand(sid, prk, label, context, octets):
        return expand(prk, octets.to_bytes(2, "big") + b"HPKE-v1" + sid + label + context, octets)

    enc = public(ephemeral)
    eae = labeled_extract(kem, b"", b"eae_prk", dh(ephemeral, recipient))
    shared = labeled_expand(kem, eae, b"shared_secret", enc + recipient, 32)
    context = b"\x00" + labeled_extract(suite, b"", b"psk_id_hash", b"") + labeled_extract(suite, b"", b"info_hash", info)
    secret = labeled_extract(suite, shared, b"secret", b"")
    key = labeled_expand(suite, secret, b"key", context, 16)
    nonce = labeled_expand(suite, secret, b"base_nonce", context, 12)
    exporter = labeled_expand(suite, secret, b"exp", context, 32)
    sealed = AESGCM(key).encrypt(nonce, plain(enc), aad(enc))
    return enc, sealed, lambda label, octets: labeled_expand(suite, exporter, b"sec", label, octets)


def part(octets):
    return len(octets).to_bytes(2, "big") + octets


def be(value, octets):
    return value.to_bytes(octets, "big")


def sign(key, label, octets):
    return key.sign(b"SAP-v1 " + label + b"\x00" + octets)


def certificate(authority, subject, key, serial):
    octets = b"\x07\x01" + subject + public(key) + be(1_799_000_000, 8) + be(1_801_000_000, 8) + be(serial, 8)
    return octets + sign(authority, b"certificate", octets)


def main():
    ed = {name: Ed25519PrivateKey.from_private_bytes(fixed(name)) for name in ("authority", "user", "operator", "broker")}
    x = {name: X25519PrivateKey.from_private_bytes(fixed(name)) for name in ("epoch", "enc", "share u", "share t", "orders")}
    domain_text = b"broker.example"
    domain = bytes([len(domain_text)]) + domain_text
    operator = bytes.fromhex("130062") + b"\x01" + be(0x0ABCDEF0123, 6)  # 310/260 with a NID
    terms = b"EUR" + be(10, 4) + be(200, 4) + be(50_000, 4) + be(200_000, 4) + b"\x02\x08\x09" + be(60, 2)
    ticket = fixed("ticket a") + fixed("ticket b", 20)
    share_u, share_t = public(x["share u"]), public(x["share t"])
    key_id = b"\x05"

    # authReqU
    before = b"\x01\x01" + key_id + domain + b"\x01" + ticket

    def vector(enc):
        fields = fixed("user id", 16) + operator + be(41, 8) + fixed("nonce", 16) + share_u
        return fields + sign(ed["user"], b"user request", before + enc + fields)

    info = b"SAP-v1 authReqU " + key_id + domain_text
    enc, sealed, export = hpke_seal(public(x["epoch"]), x["enc"], info, lambda enc: before + enc, vector)
    auth_req_u = before + enc + part(sealed)
    exported = export(b"SAP-v1 exporter", 32)

    # authReqT
    request = sha(auth_req_u)
    time = be(1_800_000_000, 8)
    cert_t = certificate(ed["authority"], b"\x01" + operator, ed["operator"], 1)
    signature = sign(ed["operator"], b"operator request", request + operator + terms + share_t + time)
    auth_req_t = b"\x02\x01" + part(auth_req_u) + part(cert_t) + terms + share_t + time + signature

    # The answer
    answer_key = sha(request + operator + terms + share_t)
    ss = fixed("ss")
    orders = ss + b"\x01\x02" + b"\x04" + bytes([10, 0, 0, 0, 8]) + b"\x06" + ipaddress.ip_address("2001:db8::").packed + b"\x20"
    enc_t, sealed_t, _ = hpke_seal(share_t, x["orders"], b"SAP-v1 orders", lambda _: answer_key, lambda _: orders)
    sealed_orders = enc_t + sealed_t
    qos = be(10_000, 4) + be(100_000, 4) + b"\x09"
    validity = be(1_800_000_000, 8) + be(1_800_003_600, 8)
    grant = b"\x06\x01" + domain + fixed("pseudonym", 16) + operator + terms + qos + validity + be(5_000_000, 8)
    grant += request + share_u + share_t + sha(sealed_orders)
    signed_grant = grant + sign(ed["broker"], b"grant", grant)
    for_user = signed_grant + ss + b"\x00" + b"\x01\x06" + fixed("next epoch")
    salt = fixed("salt", 16)
    okm = hkdf(exported, b"SAP-v1 answer", 28, salt)
    answer_u = b"\x04\x01" + salt + part(AESGCM(okm[:16]).encrypt(okm[16:], for_user, b""))
    cert_b = certificate(ed["authority"], b"\x02" + domain, ed["broker"], 2)
    answer_t = b"\x03\x01" + part(cert_b) + b"\x01" + part(signed_grant) + part(sealed_orders) + part(answer_u)

    # A refusal
    refusal = b"\x05\x01" + domain + b"\x01" + operator + request + b"\x01\x06" + fixed("next epoch")
    refusal += sign(ed["broker"], b"refusal", refusal)

    both = dh(x["share u"], share_t)
    assert both == dh(x["share t"], share_u)
    out = {f"key of {name}": fixed(name) for name in (*ed, *x)}
    out |= {
        "authReqU": auth_req_u,
        "authReqT": auth_req_t,
        "answerT": answer_t,
        "answerU": answer_u,
        "refusal": refusal,
        "SUCI": b"type1.rid0.schidc.hnkey5.out" + (b"\x01\x01\x01" + ticket + enc + part(sealed)).hex().encode() + b"@" + domain_text,
        "answer key": answer_key,
        "K_AUSF": hkdf(exported, b"SAP-v1 K_AUSF", 32),
        "K_SEAF": hkdf(ss + both, b"SAP-v1 K_SEAF" + sha(request, grant), 32),
        "SUPI": fixed("pseudonym", 16).hex().encode() + b"@" + domain_text,
    }
    print("# One attach, computed by attach.py.")
    for name, octets in out.items():
        print(f"{name} = {octets.hex()}")


main()
