"""A UE's NAS (TS 24.501): what it sends, what it accepts, its keys and counts. pycrate encodes and decodes.

Every method that takes a message from the core raises `Wrong` if a ue would not accept it.
"""
import contextlib
import io

with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):  # it says that it has no ciphers; ours are in crypto.py
    from pycrate_mobile import TS24501_FGMM as MM
    from pycrate_mobile import TS24501_FGSM as SM
    from pycrate_mobile.NAS5G import parse_NAS5G

import crypto

PLAIN, INTEGRITY, CIPHERED, INTEGRITY_NEW, CIPHERED_NEW = range(5)  # security header types, TS 24.501 §9.3
UPLINK, DOWNLINK = 0, 1
BEARER = 1  # NAS connection identifier of 3GPP access

SESSION_OPTIONS = b"\x80" + b"\x00\x0d\x00" + b"\x00\x10\x00"  # TS 24.008 §10.5.6.3: DNS server, link MTU
SESSION_OPTIONS_ANSWER = b"\x80" + b"\x00\x0d\x04\x0a\x2d\x00\x01" + b"\x00\x10\x02\x05\x78"
N1_SM = 1  # payload container type, TS 24.501 §9.11.3.40


class Wrong(Exception):
    """What a UE cannot accept; the text says why."""


def demand(condition, why):
    if not condition:
        raise Wrong(why)


def element(message, name):
    """The octets of an IE's value (of a half-octet IE its number), or None if the message has none."""
    for ie in message:
        if ie._name == name:
            if ie.get_trans():
                return None
            value = ie[-1]
            return value.to_uint() if value.get_bl() < 8 else value.to_bytes()
    return None


class Ue:
    """One UE with its USIM."""

    def __init__(self, imsi, k, opc, mcc="999", mnc="70", home_key=None, null_cipher=False):
        self.imsi, self.mcc, self.mnc = imsi, mcc, mnc
        self.usim = crypto.Milenage(k, opc)
        self.home_key = home_key  # (key identifier, public key) for profile A
        # 5G-EA0 alone, or EA0 and EA2; 5G-IA2
        self.capability = bytes([0x80 if null_cipher else 0xA0, 0x20])
        self.sqn = 0  # highest accepted
        self.guti = None
        self.forget_keys()

    def forget_keys(self):
        self.ksi = 7
        self.kamf = None
        self.pending = None
        self.keys = None  # (integrity algorithm, ciphering algorithm, K_NASint, K_NASenc)
        self.uplink_count = self.downlink_count = 0
        self.kgnb_uplink_count = 0

    # ---- identity --------------------------------------------------------------------------------------------------

    def plmn(self):
        """TS 24.501 §9.11.3.4: the order of NAS."""
        mcc, mnc = [int(d) for d in self.mcc], [int(d) for d in self.mnc]
        third = mnc[2] if len(mnc) == 3 else 15
        return bytes([mcc[1] << 4 | mcc[0], third << 4 | mcc[2], mnc[1] << 4 | mnc[0]])

    def ngap_plmn(self):
        """TS 38.413 §9.3.3.5: all digits in turn, the filler before an MNC of two."""
        digits = [int(d) for d in self.mcc] + [15] * (3 - len(self.mnc)) + [int(d) for d in self.mnc]
        return bytes(digits[i] | digits[i + 1] << 4 for i in (0, 2, 4))

    def suci(self):
        """TS 24.501 §9.11.3.4, SUPI format IMSI, routing indicator 0."""
        msin = self.imsi[len(self.mcc) + len(self.mnc):]
        padded = msin + "f" * (len(msin) % 2)
        text = bytes(int(padded[i + 1] + padded[i], 16) for i in range(0, len(padded), 2))
        scheme, key, output = 0, 0, text
        if self.home_key:
            scheme, key = 1, self.home_key[0]
            output = crypto.conceal_profile_a(self.home_key[1], text)
        return b"\x01" + self.plmn() + b"\xf0\xff" + bytes([scheme, key]) + output

    def imeisv(self):
        digits = "4370816125816151"  # 16 digits; the first shares its octet with the type (TS 24.501 §9.11.3.4)
        octets = [int(digits[0]) << 4 | 0x5]
        rest = digits[1:] + "f"
        octets += [int(rest[i + 1] + rest[i], 16) for i in range(0, 16, 2)]
        return bytes(octets)

    def s_tmsi(self):
        """AMF set and pointer (2 octets) and 5G-TMSI, out of the 5G-GUTI."""
        demand(self.guti is not None, "no 5G-GUTI was given")
        return self.guti[5:11]

    # ---- the security envelope, TS 24.501 §4.4 -----------------------------------------------------------------------

    def protect(self, plain, header):
        integrity, ciphering, k_int, k_enc = self.keys
        count = self.uplink_count
        self.uplink_count += 1
        payload = plain
        if header in (CIPHERED, CIPHERED_NEW) and ciphering == 2:
            payload = crypto.nea2(k_enc, count, BEARER, UPLINK, plain)
        covered = bytes([count & 0xFF]) + payload
        return bytes([0x7E, header]) + crypto.nia2(k_int, count, BEARER, UPLINK, covered) + covered

    def unprotect(self, octets):
        """The plain message within, and its security header type."""
        demand(len(octets) >= 3 and octets[0] == 0x7E, f"not 5GMM: {octets[:4].hex()}")
        header = octets[1] & 0x0F
        if header == PLAIN:
            return octets, PLAIN
        demand(len(octets) > 7, "a protected message without content")
        demand(self.keys is not None, "protected, but there are no keys yet")
        _, ciphering, k_int, k_enc = self.keys
        sequence = octets[6]
        count = self.downlink_count & ~0xFF | sequence
        if count < self.downlink_count:
            count += 0x100
        demand(count - self.downlink_count < 0x80, f"downlink COUNT {sequence} was used before")
        demand(crypto.nia2(k_int, count, BEARER, DOWNLINK, octets[6:]) == octets[2:6], "wrong message authentication code")
        self.downlink_count = count + 1
        plain = octets[7:]
        if header in (CIPHERED, CIPHERED_NEW) and ciphering == 2:
            plain = crypto.nea2(k_enc, count, BEARER, DOWNLINK, plain)
        return plain, header

    def read(self, octets, *names, protected=True):
        """Unprotect and decode one of the messages `names` (pycrate's names)."""
        plain, header = self.unprotect(octets)
        demand(header != PLAIN or not protected, f"{plain.hex()} came without protection")
        message, error = parse_NAS5G(plain, inner=False)
        demand(error == 0, f"pycrate cannot decode {plain.hex()} (5GMM cause {error})")
        demand(message.to_bytes() == plain, f"pycrate encodes {plain.hex()} as {message.to_bytes().hex()}")
        demand(message._name in names, f"came {message._name}, awaited {' or '.join(names)}: {plain.hex()}")
        return message

    def k_gnb(self):
        """K_gNB by the uplink COUNT of the message that brought the UE to connected mode (TS 33.501 §6.8.1.2.2)."""
        return crypto.k_gnb(self.kamf, self.kgnb_uplink_count)

    def next_hop(self, ncc):
        """NH for a chaining count, from K_gNB on: K_gNB counts as 0, the first NH as 1 (TS 33.501 §6.9.2.1.1)."""
        nh = self.k_gnb()
        for _ in range(ncc or 8):
            nh = crypto.next_hop(self.kamf, nh)
        return nh

    # ---- registration ----------------------------------------------------------------------------------------------

    def _registration_request(self, kind, whole):
        values = {
            "NAS_KSI": {"TSC": 0, "Value": self.ksi},
            "5GSRegType": {"FOR": 1, "Value": kind},
            "5GSID": self.guti or self.suci(),
            "UESecCap": self.capability,
        }
        if whole:
            values["5GMMCap"] = b"\x00"
            values["NSSAI"] = b"\x01\x01"
        return MM.FGMMRegistrationRequest(val=values).to_bytes()

    def registration_request(self, kind=1):
        """The first message: clear-text IEs only (TS 24.501 §4.4.6); protected if there are keys. Kind 1: initial."""
        self.whole_request = self._registration_request(kind, whole=True)
        if self.keys is None:
            return self._registration_request(kind, whole=False)
        # With keys, the whole message travels ciphered inside the container of the clear-text one.
        message = MM.FGMMRegistrationRequest(val={
            "NAS_KSI": {"TSC": 0, "Value": self.ksi},
            "5GSRegType": {"FOR": 1, "Value": kind},
            "5GSID": self.guti or self.suci(),
            "UESecCap": self.capability,
            "NASContainer": self._cipher_container(self.whole_request),
        })
        self.kgnb_uplink_count = self.uplink_count
        return self.protect(message.to_bytes(), INTEGRITY)

    def _cipher_container(self, plain):
        """The value of the NAS message container in an initial message: ciphered with the message's own COUNT."""
        _, ciphering, _, k_enc = self.keys
        return crypto.nea2(k_enc, self.uplink_count, BEARER, UPLINK, plain) if ciphering == 2 else plain

    def identity_response(self):
        return MM.FGMMIdentityResponse(val={"5GSID": self.suci()}).to_bytes()

    def authenticate(self, octets):
        """AUTHENTICATION REQUEST in; AUTHENTICATION RESPONSE out. TS 33.501 §6.1.3.2, TS 33.102 §6.3.3."""
        message = self.read(octets, "5GMMAuthenticationRequest", protected=False)
        rand, autn, abba = (element(message, name) for name in ("RAND", "AUTN", "ABBA"))
        demand(rand is not None and autn is not None, "no RAND or no AUTN: not 5G-AKA")
        demand(abba == b"\0\0", f"ABBA {abba and abba.hex()}, awaited 0000 (TS 33.501 §A.7.1)")
        ksi = element(message, "NAS_KSI") & 7
        demand(ksi != 7, "ngKSI 7 means: no key")
        demand(ksi != self.ksi, f"ngKSI {ksi} is that of the keys in use (TS 24.501 §5.4.1.3.2)")
        res, ak = self.usim.f2_f5(rand)
        sqn_xor_ak, amf, mac = autn[:6], autn[6:8], autn[8:]
        sqn = crypto.xor(sqn_xor_ak, ak)
        demand(self.usim.f1(rand, sqn, amf)[0] == mac, "AUTN: wrong MAC-A")
        demand(amf[0] & 0x80, "AUTN: the AMF separation bit is not set (TS 33.501 §6.1.3.2)")
        demand(int.from_bytes(sqn, "big") > self.sqn, f"AUTN: SQN {sqn.hex()} is not fresh")
        self.sqn = int.from_bytes(sqn, "big")
        network = crypto.serving_network_name(self.mcc, self.mnc)
        ck, ik = self.usim.f3(rand), self.usim.f4(rand)
        self.pending = ksi, crypto.k_amf(ck, ik, network, sqn_xor_ak, self.imsi.encode(), abba)
        answer = crypto.res_star(ck, ik, network, rand, res)
        return MM.FGMMAuthenticationResponse(val={"RES": answer}).to_bytes()

    def claim_stale(self, octets, ahead):
        """AUTHENTICATION REQUEST in; AUTHENTICATION FAILURE out, cause synch failure, as if SQN_MS were `ahead` of it."""
        message = self.read(octets, "5GMMAuthenticationRequest", protected=False)
        rand, autn = element(message, "RAND"), element(message, "AUTN")
        _, ak = self.usim.f2_f5(rand)
        self.sqn = int.from_bytes(crypto.xor(autn[:6], ak), "big") + ahead
        sqn_ms = self.sqn.to_bytes(6, "big")
        auts = crypto.xor(sqn_ms, self.usim.f5_star(rand)) + self.usim.f1(rand, sqn_ms, b"\0\0")[1]
        return MM.FGMMAuthenticationFailure(val={"5GMMCause": b"\x15", "AUTS": auts}).to_bytes()

    def secure(self, octets):
        """SECURITY MODE COMMAND in, checked; SECURITY MODE COMPLETE out."""
        demand(octets[1] & 0x0F == INTEGRITY_NEW, "SECURITY MODE COMMAND: wrong security header type")
        demand(self.pending is not None or self.kamf is not None, "SECURITY MODE COMMAND before authentication")
        ksi, kamf = self.pending or (self.ksi, self.kamf)
        algorithms = octets[7 + 3]  # needed before the message can be verified: it names the algorithms
        ciphering, integrity = algorithms >> 4, algorithms & 0x0F
        demand(integrity == 2, f"5G-IA{integrity} was not offered")
        demand(self.capability[0] & 0x80 >> ciphering, f"5G-EA{ciphering} was not offered")
        self.ksi, self.kamf, self.pending = ksi, kamf, None
        self.keys = integrity, ciphering, crypto.nas_key(kamf, "int", integrity), crypto.nas_key(kamf, "enc", ciphering)
        self.uplink_count = self.downlink_count = 0
        message = self.read(octets, "5GMMSecurityModeCommand")
        demand(element(message, "NAS_KSI") & 7 == ksi, "another ngKSI than that of the authentication")
        replayed = element(message, "UESecCap")
        demand(replayed == self.capability, f"UE security capability replayed as {replayed.hex()}, sent {self.capability.hex()}")
        wants_imeisv = element(message, "IMEISVReq")
        values = {"NASContainer": self.whole_request}
        if wants_imeisv is not None and wants_imeisv & 7 == 1:
            values["IMEISV"] = self.imeisv()
        self.kgnb_uplink_count = self.uplink_count
        return self.protect(MM.FGMMSecurityModeComplete(val=values).to_bytes(), CIPHERED_NEW)

    def accepted(self, octets):
        """REGISTRATION ACCEPT in, checked; REGISTRATION COMPLETE out (None if none is due)."""
        message = self.read(octets, "5GMMRegistrationAccept")
        guti = element(message, "GUTI")
        if guti is not None:
            demand(len(guti) == 11 and guti[0] == 0xF2, f"not a 5G-GUTI: {guti.hex()}")
            demand(guti != self.guti, "the 5G-GUTI was not reallocated (TS 33.501 §6.12.3)")
            self.guti = guti
        demand(self.guti is not None, "no 5G-GUTI")
        demand(element(message, "5GSTAIList") is not None, "no TAI list")
        demand(element(message, "AllowedNSSAI") is not None, "no allowed NSSAI")
        self.last_accept = message
        if guti is None:
            return None
        return self.protect(MM.FGMMRegistrationComplete().to_bytes(), CIPHERED)

    # ---- sessions and what follows -----------------------------------------------------------------------------------

    def _transport(self, session, payload, **values):
        message = MM.FGMMULNASTransport(val={
            "PayloadContainerType": N1_SM, "PayloadContainer": payload, "PDUSessID": bytes([session]), **values})
        return self.protect(message.to_bytes(), CIPHERED)

    def session_request(self, session, dnn="internet"):
        """PDU SESSION ESTABLISHMENT REQUEST, IPv4, asking for a DNS server address and the link MTU."""
        payload = SM.FGSMPDUSessionEstabRequest(val={
            "5GSMHeader": {"PDUSessID": session, "PTI": session},
            "IntegrityProtMaxDataRate": b"\xff\xff",
            "PDUSessType": {"Value": 1},
            "SSCMode": {"Value": 1},
            "ExtProtConfig": SESSION_OPTIONS,
        }).to_bytes()
        label = bytes([len(dnn)]) + dnn.encode()
        return self._transport(session, payload, RequestType={"Value": 1}, SNSSAI=b"\x01", DNN=label)

    def session_message(self, octets, session, *names):
        """DL NAS TRANSPORT in; the 5GSM message within, checked."""
        outer = self.read(octets, "5GMMDLNASTransport")
        demand(element(outer, "PayloadContainerType") == N1_SM, "not a 5GSM payload")
        demand(element(outer, "PDUSessID") == bytes([session]), "for another PDU session")
        plain = element(outer, "PayloadContainer")
        message, error = parse_NAS5G(plain, inner=False)
        demand(error == 0, f"pycrate cannot decode {plain.hex()} (5GSM cause {error})")
        demand(message.to_bytes() == plain, f"pycrate encodes {plain.hex()} as {message.to_bytes().hex()}")
        demand(message._name in names, f"came {message._name}, awaited {' or '.join(names)}: {plain.hex()}")
        return message

    def session_accepted(self, octets, session):
        """PDU SESSION ESTABLISHMENT ACCEPT in; (IPv4 address as text, protocol configuration options) out."""
        message = self.session_message(octets, session, "5GSMPDUSessionEstabAccept")
        demand(message[0]["PTI"].get_val() == session, "another PTI than that of the request")
        demand(element(message, "PDUSessType") & 7 == 1, "another PDU session type than IPv4")
        address = element(message, "PDUAddress")
        demand(address is not None and len(address) == 5 and address[0] & 7 == 1, "no IPv4 address")
        demand(element(message, "QoSFlowDesc") is not None, "no QoS flow description")
        rules = element(message, "QoSRules")
        demand(rules is not None and len(rules) >= 4, "no QoS rule")
        return ".".join(map(str, address[1:])), element(message, "ExtProtConfig") or b""

    def session_release_request(self, session):
        payload = SM.FGSMPDUSessionReleaseRequest(val={"5GSMHeader": {"PDUSessID": session, "PTI": session + 1}}).to_bytes()
        return self._transport(session, payload)

    def session_released(self, octets, session):
        """PDU SESSION RELEASE COMMAND in; PDU SESSION RELEASE COMPLETE out."""
        message = self.session_message(octets, session, "5GSMPDUSessionReleaseCommand")
        pti = message[0]["PTI"].get_val()
        payload = SM.FGSMPDUSessionReleaseComplete(val={"5GSMHeader": {"PDUSessID": session, "PTI": pti}}).to_bytes()
        return self._transport(session, payload)

    def service_request(self, sessions=()):
        """SERVICE REQUEST for signalling (0), or for data (1) of `sessions`; what is not clear text goes into the container."""
        bitmap = sum(1 << s for s in sessions).to_bytes(2, "little")
        clear = {
            "ServiceType": 1 if sessions else 0,
            "NAS_KSI": {"TSC": 0, "Value": self.ksi},
            "5GSID": b"\xf4" + self.s_tmsi(),
        }
        whole = MM.FGMMServiceRequest(val={**clear, "ULDataStat": bitmap, "PDUSessStat": bitmap}).to_bytes()
        message = MM.FGMMServiceRequest(val={**clear, "NASContainer": self._cipher_container(whole)})
        self.kgnb_uplink_count = self.uplink_count
        return self.protect(message.to_bytes(), INTEGRITY)

    def service_accepted(self, octets):
        return self.read(octets, "5GMMServiceAccept")

    def deregistration_request(self, switch_off=False):
        message = MM.FGMMMODeregistrationRequest(val={
            "NAS_KSI": {"TSC": 0, "Value": self.ksi},
            "DeregistrationType": {"SwitchOff": int(switch_off), "AccessType": 1},
            "5GSID": self.guti,
        })
        return self.protect(message.to_bytes(), CIPHERED)

    def updated(self, octets):
        """CONFIGURATION UPDATE COMMAND in; CONFIGURATION UPDATE COMPLETE out if it asks for one, else None."""
        message = self.read(octets, "5GMMConfigurationUpdateCommand")
        guti = element(message, "GUTI")
        if guti is not None:
            self.guti = guti
        indication = element(message, "ConfigUpdateInd")
        if indication is None or not indication & 1:
            return None
        return self.protect(MM.FGMMConfigurationUpdateComplete().to_bytes(), CIPHERED)
