"""The UE's cryptography, written from the standards and sharing nothing with the core's: Milenage (TS 35.206), the
key hierarchy (TS 33.501 Annex A), 128-NIA2 and 128-NEA2 (TS 33.501 Annex D), and the SUCI profile A (Annex C.3.4.1).

`python3 crypto.py` checks it against published test sets.
"""
import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.cmac import CMAC


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def aes(key, block):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


class Milenage:
    """TS 35.206 §4.1: f1 to f5*, for one USIM."""

    def __init__(self, k, opc):
        self.k, self.opc = k, opc

    @staticmethod
    def opc_of(k, op):
        return xor(aes(k, op), op)

    def _out(self, rand, rotation_octets, constant):
        temp = xor(aes(self.k, xor(rand, self.opc)), self.opc)
        temp = temp[rotation_octets:] + temp[:rotation_octets]
        return xor(aes(self.k, xor(temp, bytes(15) + bytes([constant]))), self.opc)

    def f1(self, rand, sqn, amf):
        """MAC-A (8 octets) and MAC-S (8 octets)."""
        temp = aes(self.k, xor(rand, self.opc))
        in1 = xor((sqn + amf) * 2, self.opc)
        in1 = in1[8:] + in1[:8]
        out = xor(aes(self.k, xor(temp, in1)), self.opc)
        return out[:8], out[8:]

    def f2_f5(self, rand):
        """RES (8 octets) and AK (6 octets)."""
        temp = xor(aes(self.k, xor(rand, self.opc)), self.opc)
        out = xor(aes(self.k, temp[:15] + bytes([temp[15] ^ 1])), self.opc)
        return out[8:], out[:6]

    def f3(self, rand):
        return self._out(rand, 4, 2)

    def f4(self, rand):
        return self._out(rand, 8, 4)

    def f5_star(self, rand):
        return self._out(rand, 12, 8)[:6]


def kdf(key, fc, *parameters):
    """TS 33.220 Annex B.2."""
    text = bytes([fc])
    for parameter in parameters:
        text += parameter + len(parameter).to_bytes(2, "big")
    return hmac.new(key, text, hashlib.sha256).digest()


def serving_network_name(mcc, mnc):
    """TS 24.501 §9.12.1."""
    return f"5G:mnc{mnc:0>3}.mcc{mcc}.3gppnetwork.org".encode()


def res_star(ck, ik, network, rand, res):
    return kdf(ck + ik, 0x6B, network, rand, res)[16:]


def k_amf(ck, ik, network, sqn_xor_ak, supi, abba):
    """K_AUSF, K_SEAF and K_AMF in turn; the last is what the NAS keys come from."""
    k_ausf = kdf(ck + ik, 0x6A, network, sqn_xor_ak)
    k_seaf = kdf(k_ausf, 0x6C, network)
    return kdf(k_seaf, 0x6D, supi, abba)


def nas_key(kamf, what, algorithm):
    """`what` is "enc" or "int"."""
    return kdf(kamf, 0x69, bytes([{"enc": 1, "int": 2}[what]]), bytes([algorithm]))[16:]


def k_gnb(kamf, uplink_count):
    return kdf(kamf, 0x6E, uplink_count.to_bytes(4, "big"), b"\x01")


def next_hop(kamf, sync):
    """NH; `sync` is K_gNB for the first one, the NH before it for the others (TS 33.501 §A.10)."""
    return kdf(kamf, 0x6F, sync)


def _count_bearer_direction(count, bearer, direction):
    return count.to_bytes(4, "big") + bytes([bearer << 3 | direction << 2, 0, 0, 0])


def nia2(key, count, bearer, direction, message):
    cmac = CMAC(algorithms.AES(key))
    cmac.update(_count_bearer_direction(count, bearer, direction) + message)
    return cmac.finalize()[:4]


def nea2(key, count, bearer, direction, message):
    counter = _count_bearer_direction(count, bearer, direction) + bytes(8)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    return encryptor.update(message) + encryptor.finalize()


def conceal_profile_a(home_public, text, ephemeral=None):
    """The scheme output of profile A: the UE's public key, the text concealed, and its tag."""
    ephemeral = ephemeral or X25519PrivateKey.generate()
    public = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(home_public))
    stream, block = b"", 1
    while len(stream) < 64:  # ANSI X9.63 with SHA-256: 16 octets of key, 16 of counter block, 32 of MAC key
        stream += hashlib.sha256(shared + block.to_bytes(4, "big") + public).digest()
        block += 1
    encryptor = Cipher(algorithms.AES(stream[:16]), modes.CTR(stream[16:32])).encryptor()
    concealed = encryptor.update(text) + encryptor.finalize()
    return public + concealed + hmac.new(stream[32:64], concealed, hashlib.sha256).digest()[:8]


def selftest():
    """Published test sets; raises AssertionError."""
    h = bytes.fromhex
    # TS 35.208 §4.3, test set 1
    k, rand = h("465b5ce8b199b49faa5f0a2ee238a6bc"), h("23553cbe9637a89d218ae64dae47bf35")
    opc = Milenage.opc_of(k, h("cdc202d5123e20f62b6d676ac72cb318"))
    assert opc == h("cd63cb71954a9f4e48a5994e37a02baf")
    usim = Milenage(k, opc)
    assert usim.f1(rand, h("ff9bb4d0b607"), h("b9b9")) == (h("4a9ffac354dfafb3"), h("01cfaf9ec4e871e9"))
    assert usim.f2_f5(rand) == (h("a54211d5e3ba50bf"), h("aa689c648370"))
    assert usim.f3(rand) == h("b40ba9a3c58b2a05bbf0d987b21bf8cb")
    assert usim.f4(rand) == h("f769bcd751044604127672711c6d3441")
    assert usim.f5_star(rand) == h("451e8beca43b")
    # TS 33.401 Annex C.2.2, test set 2, and C.1.1, test set 1 (its last three bits are padding)
    key = h("d3c5d592327fb11c4035c6680af8c6d1")
    assert nia2(key, 0x398A59B4, 0x1A, 1, h("484583d5afe082ae")) == h("b93787e6")
    assert nea2(key, 0x398A59B4, 0x15, 1, h("981ba6824c1bfb1ab485472029b71d808ce33e2cc3c0b5fc1f3de8a6dc66b1f0"))[:31] == h(
        "e9fed8a63d155304d71df20bf3e82214b20ed7dad2f233dc3c22d7bdeeed8e")
    # TS 33.501 Annex C.4.3, profile A, IMSI-based SUPI
    ephemeral = X25519PrivateKey.from_private_bytes(h("c80949f13ebe61af4ebdbd293ea4f942696b9e815d7e8f0096bbf6ed7de62256"))
    output = conceal_profile_a(
        h("5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650"), h("00012080f6"), ephemeral)
    assert output == h("b2e92f836055a255837debf850b528997ce0201cb82adfe4be1f587d07d8457d" "cb02352410" "cddd9e730ef3fa87")


if __name__ == "__main__":
    selftest()
    print("crypto: the published test sets pass")
