"""A stand-in core, to judge the judge: just enough of an AMF, SMF and UPF for every scenario to pass, in the same process
and without sockets; and faults that can be planted in it, each of which some scenario must find.

It is no measure of anything: it shares crypto.py and pycrate with the gNB and ue.
"""
import contextlib
import copy
import io
import select
import socket

import crypto
import gtpu
import ngap
import sctp
from gnb import Gnb
from ue import MM, SM, parse_NAS5G
from ue import BEARER, CIPHERED, DOWNLINK, INTEGRITY_NEW, SESSION_OPTIONS_ANSWER, UPLINK, element

UPF, ADDRESS, TEID, FORWARDING, QFI = "127.0.0.7", "10.45.0.2", 0xABCD, 0xF0F0, 1

# What can be planted, and the scenario that must find it.
FAULTS = {
    "AUTN of another key": "one UE's day",
    "separation bit not set": "one UE's day",
    "capabilities replayed wrongly": "one UE's day",
    "wrong K_gNB": "one UE's day",
    "no allowed NSSAI": "one UE's day",
    "downlink COUNT used again": "one UE's day",
    "another TEID downlink": "one UE's day",
    "no PDU session container": "one UE's day",
    "the UE's messages on stream 0": "one UE's day",
    "another PPID": "NG setup",
    "the same 5G-GUTI again": "return with a 5G-GUTI",
    "an SQN below the UE's": "SQN out of step",
    "any RES* will do": "wrong RES*",
    "anybody may come": "unknown subscriber",
    "deaf to garbage": "bad NGAP",
    "source addresses are not checked": "GTP-U",
    "replays are heard": "bad NAS",
    "old contexts stay": "a UE that restarts",
    "no UE is paged": "paging",
    "another UE is paged": "paging",
    "the NH is not a fresh one": "Xn handover",
    "no end marker": "Xn handover",
    "the source's container is changed": "N2 handover",
    "the source is kept": "N2 handover",
    "nothing is forwarded": "N2 handover",
    "any gNB will do": "N2 handover that comes to nothing",
}


# Where a gNB says what tunnels it has for the sessions.
RESPONSES = {
    "InitialContextSetupResponse": "PDUSessionResourceSetupListCxtRes",
    "PDUSessionResourceSetupResponse": "PDUSessionResourceSetupListSURes",
}


def teid_of(tunnel):
    return int.from_bytes(tunnel[1]["gTP-TEID"], "big")


class Context:
    """What the stand-in knows of one UE."""

    def __init__(self, ran_id, amf_id):
        self.ran_id, self.amf_id, self.stream = ran_id, amf_id, 1
        self.keys, self.ksi, self.up, self.down = None, 7, 0, 0
        self.kamf = self.expected = self.guti = self.capability = None
        self.session = False
        self.downlink_teid = None
        self.sync, self.ncc = None, 0  # the chain of next hops
        self.moving = None  # (the source's association, the target's context) while a handover is prepared


class Core:
    """What outlives an association."""

    def __init__(self, options, fault=None):
        self.options, self.fault = options, fault
        self.sqn, self.next_id = 32, 1
        self.by_tmsi = {}
        self.gnbs = []
        self.n3 = []  # what the UPF sends of itself
        self.plmn = b"\x99\xf9\x07"
        self.user = None  # the UE with the session
        self.waiting = []  # packets for it while it is idle
        self.forwarding = None

    def has(self, fault):
        return self.fault == fault


class StandIn:
    """The association of one gNB, as sctp.Association has it."""

    def __init__(self, core):
        self.core, self.queue, self.contexts = core, [], {}
        self.gnb_id = None
        core.gnbs.append(self)

    def close(self):
        if self in self.core.gnbs:
            self.core.gnbs.remove(self)

    abort = close

    def receive(self, _timeout):
        if not self.queue:
            raise TimeoutError
        return self.queue.pop(0)

    def answer(self, name, ies, context=None):
        stream = context.stream if context and not self.core.has("the UE's messages on stream 0") else 0
        if context:
            ies = {"AMF-UE-NGAP-ID": context.amf_id, "RAN-UE-NGAP-ID": context.ran_id, **ies}
        self.queue.append((stream, 0 if self.core.has("another PPID") else 60, ngap.encode(name, ies)))

    def send(self, octets, stream):
        try:
            name, ies = ngap.decode(octets)
        except ngap.Undecodable:
            if not self.core.has("deaf to garbage"):
                self.answer("ErrorIndication", {"Cause": ("protocol", "transfer-syntax-error")})
            return
        if name == "NGSetupRequest":
            return self.setup(ies)
        if name == "NGReset":
            self.contexts.clear()
            return self.answer("NGResetAcknowledge", {})
        if name == "PathSwitchRequest":
            return self.path_switch(ies, stream)
        if name in ("HandoverRequestAcknowledge", "HandoverFailure", "HandoverNotify"):
            return self.of_the_target(name, ies)
        if name == "InitialUEMessage":
            context = Context(ies["RAN-UE-NGAP-ID"], self.core.next_id)
            self.core.next_id += 1
            context.stream = stream
            self.contexts[context.ran_id] = context
        else:
            context = self.contexts.get(ies["RAN-UE-NGAP-ID"])
            if name == "UEContextReleaseComplete":
                return None
            if context is None or context.amf_id != ies["AMF-UE-NGAP-ID"]:
                cause = {"Cause": ("radioNetwork", "unknown-local-UE-NGAP-ID")}
                ids = {key: ies[key] for key in ("AMF-UE-NGAP-ID", "RAN-UE-NGAP-ID")}
                return self.answer("ErrorIndication", {**ids, **cause})
        if name in RESPONSES:
            self.tunnelled(context, ies.get(RESPONSES[name], []))
        elif "NAS-PDU" in ies:
            self.nas(context, ies["NAS-PDU"])
        elif name == "UEContextReleaseRequest":
            self.release(context)
        elif name == "HandoverRequired":
            self.prepare(context, ies)
        elif name == "UplinkRANStatusTransfer":
            target, moved = context.moving
            target.answer("DownlinkRANStatusTransfer", {
                "RANStatusTransfer-TransparentContainer": ies["RANStatusTransfer-TransparentContainer"]}, moved)
        elif name == "HandoverCancel":
            target, moved = context.moving
            self.answer("HandoverCancelAcknowledge", {}, context)
            target.release(moved)

    def setup(self, ies):
        self.gnb_id = ies.get("GlobalRANNodeID") and ies["GlobalRANNodeID"][1]["gNB-ID"][1][0]
        tas = ies.get("SupportedTAList", [])
        ours = [ta for ta in tas if ta["broadcastPLMNList"][0]["pLMNIdentity"] == self.core.plmn and ta["tAC"] == b"\0\0\1"]
        if not ours:
            return self.answer("NGSetupFailure", {"Cause": ("misc", "unknown-PLMN-or-SNPN")})
        self.answer("NGSetupResponse", {
            "AMFName": "stand-in",
            "ServedGUAMIList": [{"gUAMI": self.guami()}],
            "RelativeAMFCapacity": 255,
            "PLMNSupportList": [{"pLMNIdentity": self.core.plmn, "sliceSupportList": [{"s-NSSAI": {"sST": b"\1"}}]}],
        })

    def release(self, context, cause=("nas", "normal-release")):
        if context.guti:
            self.core.by_tmsi[context.guti[7:]] = context
        context.downlink_teid = None
        self.contexts.pop(context.ran_id, None)
        pair = {"aMF-UE-NGAP-ID": context.amf_id, "rAN-UE-NGAP-ID": context.ran_id}
        self.queue.append((context.stream, 60, ngap.encode("UEContextReleaseCommand", {
            "UE-NGAP-IDs": ("uE-NGAP-ID-pair", pair), "Cause": cause})))

    # ---- handover ------------------------------------------------------------------------------------------------------

    def fresh(self, context):
        """The next NH of a UE's chain."""
        if context.ncc == 0:
            context.sync, context.ncc = crypto.next_hop(context.kamf, context.k_gnb), 1
        if not self.core.has("the NH is not a fresh one"):
            context.sync = crypto.next_hop(context.kamf, context.sync)
        context.ncc += 1
        return {"nextHopChainingCount": context.ncc & 7, "nextHopNH": ngap.bits(context.sync)}

    def end_marker(self, teid):
        if not self.core.has("no end marker"):
            self.core.n3.append(bytes([0x30, gtpu.END_MARKER, 0, 0]) + teid.to_bytes(4, "big"))

    def path_switch(self, ies, stream):
        source, context = next(
            (gnb, c) for gnb in self.core.gnbs for c in gnb.contexts.values() if c.amf_id == ies["SourceAMF-UE-NGAP-ID"])
        del source.contexts[context.ran_id]
        context.ran_id, context.stream = ies["RAN-UE-NGAP-ID"], stream
        self.contexts[context.ran_id] = context
        item = ies["PDUSessionResourceToBeSwitchedDLList"][0]
        tunnel = ngap.transfer_of("PathSwitchRequestTransfer", item["pathSwitchRequestTransfer"])["dL-NGU-UP-TNLInformation"]
        self.end_marker(context.downlink_teid)
        context.downlink_teid = teid_of(tunnel)
        self.answer("PathSwitchRequestAcknowledge", {
            "SecurityContext": self.fresh(context),
            "PDUSessionResourceSwitchedList": [{
                "pDUSessionID": 1,
                "pathSwitchRequestAcknowledgeTransfer": ngap.transfer("PathSwitchRequestAcknowledgeTransfer", {})}],
            "AllowedNSSAI": [{"s-NSSAI": {"sST": b"\1"}}],
        }, context)

    def prepare(self, context, ies):
        target_id = ies["TargetID"][1]["globalRANNodeID"][1]["gNB-ID"][1][0]
        anybody = self.core.has("any gNB will do")
        target = next((gnb for gnb in self.core.gnbs if gnb is not self and (anybody or gnb.gnb_id == target_id)), None)
        if target is None:
            return self.answer("HandoverPreparationFailure", {"Cause": ("radioNetwork", "unknown-targetID")}, context)
        moved = copy.copy(context)
        moved.amf_id, moved.stream, moved.moving = self.core.next_id, 2, (self, context)
        self.core.next_id += 1
        context.moving = target, moved
        target.arriving = moved
        container = ies["SourceToTarget-TransparentContainer"]
        ambr = {"uEAggregateMaximumBitRateDL": 10**9, "uEAggregateMaximumBitRateUL": 10**9}
        target.queue.append((moved.stream, 60, ngap.encode("HandoverRequest", {
            "AMF-UE-NGAP-ID": moved.amf_id,
            "HandoverType": "intra5gs",
            "Cause": ies["Cause"],
            "UEAggregateMaximumBitRate": ambr,
            "UESecurityCapabilities": self.security_capabilities(context),
            "SecurityContext": self.fresh(moved),
            "PDUSessionResourceSetupListHOReq": [{
                "pDUSessionID": 1, "s-NSSAI": {"sST": b"\1"}, "handoverRequestTransfer": self.transfer()}],
            "AllowedNSSAI": [{"s-NSSAI": {"sST": b"\1"}}],
            "SourceToTarget-TransparentContainer": container[1:] if self.core.has("the source's container is changed") else container,
            "GUAMI": self.guami(),
        })))

    def of_the_target(self, name, ies):
        moved = self.arriving
        source, context = moved.moving
        if name == "HandoverFailure":
            return source.answer("HandoverPreparationFailure", {"Cause": ies["Cause"]}, context)
        if name == "HandoverNotify":
            self.end_marker(context.downlink_teid)
            if not self.core.has("the source is kept"):
                source.release(context, ("radioNetwork", "successful-handover"))
            self.core.user = moved
            self.core.by_tmsi[context.guti[7:]] = moved
            return None
        moved.ran_id = ies["RAN-UE-NGAP-ID"]
        self.contexts[moved.ran_id] = moved
        transfer = ngap.transfer_of(
            "HandoverRequestAcknowledgeTransfer", ies["PDUSessionResourceAdmittedList"][0]["handoverRequestAcknowledgeTransfer"])
        self.core.forwarding = teid_of(transfer["dLForwardingUP-TNLInformation"])
        moved.downlink_teid = teid_of(transfer["dL-NGU-UP-TNLInformation"])
        tunnel = {"transportLayerAddress": ngap.bits(socket.inet_aton(UPF)), "gTP-TEID": FORWARDING.to_bytes(4, "big")}
        source.answer("HandoverCommand", {
            "HandoverType": "intra5gs",
            "PDUSessionResourceHandoverList": [{
                "pDUSessionID": 1,
                "handoverCommandTransfer": ngap.transfer(
                    "HandoverCommandTransfer", {"dLForwardingUP-TNLInformation": ("gTPTunnel", tunnel)})}],
            "TargetToSource-TransparentContainer": ies["TargetToSource-TransparentContainer"],
        }, context)

    # ---- NAS ---------------------------------------------------------------------------------------------------------

    def down(self, context, message, header=CIPHERED, carrier="DownlinkNASTransport", **more):
        nas = message.to_bytes()
        if header:
            integrity, ciphering, k_int, k_enc = context.keys
            count = context.down
            context.down += 0 if self.core.has("downlink COUNT used again") else 1
            if ciphering == 2 and header == CIPHERED:
                nas = crypto.nea2(k_enc, count, BEARER, DOWNLINK, nas)
            covered = bytes([count]) + nas
            nas = bytes([0x7E, header]) + crypto.nia2(k_int, count, BEARER, DOWNLINK, covered) + covered
        if carrier is None:
            return nas
        self.answer(carrier, {**more, "NAS-PDU": nas}, context)
        return nas

    def open(self, context, nas):
        """The plain message within a protected one, or None."""
        _, ciphering, k_int, k_enc = context.keys
        count = nas[6]
        fresh = count >= context.up or self.core.has("replays are heard")
        if not fresh or crypto.nia2(k_int, count, BEARER, UPLINK, nas[6:]) != nas[2:6]:
            return None
        context.up = count + 1
        plain = nas[7:]
        return crypto.nea2(k_enc, count, BEARER, UPLINK, plain) if nas[1] in (2, 4) and ciphering == 2 else plain

    def nas(self, context, nas):
        if len(nas) < 3 or nas[0] != 0x7E:
            return None
        header = nas[1] & 15
        if header:
            old = self.core.by_tmsi.get(self.tmsi_in(nas)) if context.keys is None else None
            if old:
                for name in ("keys", "ksi", "kamf", "guti", "capability", "up", "down", "session"):
                    setattr(context, name, getattr(old, name))
            plain = self.open(context, nas) if context.keys and len(nas) > 7 else None
            if plain is None:
                return None
        else:
            plain = nas
        message, error = parse_NAS5G(plain, inner=False)
        if error:
            return self.down(context, MM.FGMMStatus(val={"5GMMCause": bytes([97])}), 2) if context.keys else None
        handler = getattr(self, "on_" + message._name.removeprefix("5GMM"), None)
        return handler(context, message, plain) if handler else None

    @staticmethod
    def tmsi_in(nas):
        message, error = parse_NAS5G(nas[7:], inner=False)
        identity = None if error else element(message, "5GSID")
        return identity[-4:] if identity else None

    def on_RegistrationRequest(self, context, message, plain):
        context.capability = element(message, "UESecCap")
        if context.keys:
            return self.accept(context)
        identity = element(message, "5GSID")
        if identity[0] & 7 != 1:
            return self.down(context, MM.FGMMIdentityRequest(val={"5GSIDType": {"Value": 1}}), 0)
        self.challenge(context, identity)

    def on_IdentityResponse(self, context, message, plain):
        self.challenge(context, element(message, "5GSID"))

    def challenge(self, context, suci):
        known = self.core.options.imsi[5:] == "".join(f"{o & 15:x}{o >> 4:x}" for o in suci[8:]).rstrip("f")
        if not known and not self.core.has("anybody may come"):
            self.down(context, MM.FGMMRegistrationReject(val={"5GMMCause": b"\x03"}), 0)
            return self.release(context)
        k = bytes(16) if self.core.has("AUTN of another key") else self.core.options.k
        usim = crypto.Milenage(k, self.core.options.opc)
        self.core.sqn += 32
        rand, sqn = bytes([context.amf_id & 255]) * 16, self.core.sqn.to_bytes(6, "big")
        amf = b"\0\0" if self.core.has("separation bit not set") else b"\x80\0"
        res, ak = usim.f2_f5(rand)
        hidden = crypto.xor(sqn, ak)
        network = crypto.serving_network_name("999", "70")
        ck, ik = usim.f3(rand), usim.f4(rand)
        context.challenged = rand, crypto.res_star(ck, ik, network, rand, res), suci
        context.kamf = crypto.k_amf(ck, ik, network, hidden, self.core.options.imsi.encode(), b"\0\0")
        self.down(context, MM.FGMMAuthenticationRequest(val={
            "NAS_KSI": {"TSC": 0, "Value": 1}, "ABBA": b"\0\0", "RAND": rand,
            "AUTN": hidden + amf + usim.f1(rand, sqn, amf)[0]}), 0)

    def on_AuthenticationFailure(self, context, message, plain):
        auts, (rand, _, suci) = element(message, "AUTS"), context.challenged
        usim = crypto.Milenage(self.core.options.k, self.core.options.opc)
        if not self.core.has("an SQN below the UE's"):
            self.core.sqn = int.from_bytes(crypto.xor(auts[:6], usim.f5_star(rand)), "big")
        self.challenge(context, suci)

    def on_AuthenticationResponse(self, context, message, plain):
        if element(message, "RES") != context.challenged[1] and not self.core.has("any RES* will do"):
            self.down(context, MM.FGMMAuthenticationReject(), 0)
            return self.release(context)
        context.keys = 2, 2, crypto.nas_key(context.kamf, "int", 2), crypto.nas_key(context.kamf, "enc", 2)
        context.up = context.down = 0
        replayed = b"\xff\xff" if self.core.has("capabilities replayed wrongly") else context.capability
        self.down(context, MM.FGMMSecurityModeCommand(val={
            "NASSecAlgo": b"\x22", "NAS_KSI": {"TSC": 0, "Value": 1}, "UESecCap": replayed,
            "IMEISVReq": {"Value": 1}}), INTEGRITY_NEW)

    def on_SecurityModeComplete(self, context, message, plain):
        for other in list(self.contexts.values()):
            if other is not context and other.guti and not self.core.has("old contexts stay"):
                self.release(other)
        self.accept(context)

    def guami(self):
        return {"pLMNIdentity": self.core.plmn, "aMFRegionID": (1, 8), "aMFSetID": (1, 10), "aMFPointer": (1, 6)}

    @staticmethod
    def security_capabilities(context):
        shifted = [ngap.bits(bytes([octet << 1 & 0xE0, 0])) for octet in context.capability]
        return {"nRencryptionAlgorithms": shifted[0], "nRintegrityProtectionAlgorithms": shifted[1],
                "eUTRAencryptionAlgorithms": (0, 16), "eUTRAintegrityProtectionAlgorithms": (0, 16)}

    def context_setup(self, context, nas, **more):
        uplink = context.up - 1 + (100 if self.core.has("wrong K_gNB") else 0)
        context.k_gnb = crypto.k_gnb(context.kamf, uplink)
        context.sync, context.ncc = None, 0
        self.answer("InitialContextSetupRequest", {
            "UEAggregateMaximumBitRate": {"uEAggregateMaximumBitRateDL": 10**9, "uEAggregateMaximumBitRateUL": 10**9},
            "GUAMI": self.guami(),
            **more,
            "AllowedNSSAI": [{"s-NSSAI": {"sST": b"\1"}}],
            "UESecurityCapabilities": self.security_capabilities(context),
            "SecurityKey": ngap.bits(context.k_gnb),
            "NAS-PDU": nas,
        }, context)

    def accept(self, context):
        if not (context.guti and self.core.has("the same 5G-GUTI again")):
            context.guti = b"\xf2" + self.core.plmn + b"\x01\x00\x41" + (0x10000 + context.amf_id).to_bytes(4, "big")
        self.core.by_tmsi[context.guti[7:]] = context
        values = {"5GSRegResult": b"\x01", "GUTI": context.guti, "5GSTAIList": b"\x00" + self.core.plmn + b"\0\0\1"}
        if not self.core.has("no allowed NSSAI"):
            values["AllowedNSSAI"] = b"\x01\x01"
        self.context_setup(context, self.down(context, MM.FGMMRegistrationAccept(val=values), carrier=None))

    def on_ServiceRequest(self, context, message, plain):
        more = {}
        whole, _ = parse_NAS5G(crypto.nea2(context.keys[3], context.up - 1, BEARER, UPLINK, element(message, "NASContainer")))
        if context.session and element(whole, "ULDataStat") != b"\0\0":
            more["PDUSessionResourceSetupListCxtReq"] = [{
                "pDUSessionID": 1, "s-NSSAI": {"sST": b"\1"}, "pDUSessionResourceSetupRequestTransfer": self.transfer()}]
        self.context_setup(context, self.down(context, MM.FGMMServiceAccept(), carrier=None), **more)

    def on_MODeregistrationRequest(self, context, message, plain):
        if not element(message, "DeregistrationType") & 8:
            self.down(context, MM.FGMMMODeregistrationAccept())
        self.release(context)
        self.core.by_tmsi.pop(context.guti[7:], None)

    # ---- sessions ----------------------------------------------------------------------------------------------------

    @staticmethod
    def transfer():
        arp = {"priorityLevelARP": 8, "pre-emptionCapability": "shall-not-trigger-pre-emption",
               "pre-emptionVulnerability": "not-pre-emptable"}
        flow = {"qosFlowIdentifier": QFI, "qosFlowLevelQosParameters": {
            "qosCharacteristics": ("nonDynamic5QI", {"fiveQI": 9}), "allocationAndRetentionPriority": arp}}
        tunnel = {"transportLayerAddress": ngap.bits(socket.inet_aton(UPF)), "gTP-TEID": TEID.to_bytes(4, "big")}
        return ngap.transfer("PDUSessionResourceSetupRequestTransfer", {"protocolIEs": [
            {"id": 139, "criticality": "reject", "value": ("UPTransportLayerInformation", ("gTPTunnel", tunnel))},
            {"id": 134, "criticality": "reject", "value": ("PDUSessionType", "ipv4")},
            {"id": 136, "criticality": "reject", "value": ("QosFlowSetupRequestList", [flow])},
        ]})

    def wrap(self, context, message):
        return self.down(context, MM.FGMMDLNASTransport(val={
            "PayloadContainerType": 1, "PayloadContainer": message.to_bytes(), "PDUSessID": b"\1"}), carrier=None)

    def on_ULNASTransport(self, context, message, plain):
        inner, _ = parse_NAS5G(element(message, "PayloadContainer"), inner=False)
        head = {"PDUSessID": 1, "PTI": inner[0]["PTI"].get_val()}
        if inner._name == "5GSMPDUSessionEstabRequest":
            if element(message, "DNN") != b"\x08internet":
                reject = SM.FGSMPDUSessionEstabReject(val={"5GSMHeader": head, "5GSMCause": b"\x1b"})
                return self.answer("DownlinkNASTransport", {"NAS-PDU": self.wrap(context, reject)}, context)
            context.session = True
            nas = self.wrap(context, SM.FGSMPDUSessionEstabAccept(val={
                "5GSMHeader": head, "PDUSessType": {"Value": 1}, "SSCMode": {"Value": 1},
                "QoSRules": bytes.fromhex("01000631310101ff01"), "SessAMBR": b"\x06\x03\xe8\x06\x03\xe8",
                "PDUAddress": b"\x01" + socket.inet_aton(ADDRESS), "QoSFlowDesc": bytes.fromhex("012041010109"),
                "ExtProtConfig": SESSION_OPTIONS_ANSWER}))
            self.answer("PDUSessionResourceSetupRequest", {
                "PDUSessionResourceSetupListSUReq": [{
                    "pDUSessionID": 1, "pDUSessionNAS-PDU": nas, "s-NSSAI": {"sST": b"\1"},
                    "pDUSessionResourceSetupRequestTransfer": self.transfer()}],
                "UEAggregateMaximumBitRate": {"uEAggregateMaximumBitRateDL": 10**9, "uEAggregateMaximumBitRateUL": 10**9},
            }, context)
        elif inner._name == "5GSMPDUSessionReleaseRequest":
            context.session = False
            nas = self.wrap(context, SM.FGSMPDUSessionReleaseCommand(val={"5GSMHeader": head, "5GSMCause": b"\x24"}))
            self.answer("PDUSessionResourceReleaseCommand", {
                "NAS-PDU": nas,
                "PDUSessionResourceToReleaseListRelCmd": [{
                    "pDUSessionID": 1, "pDUSessionResourceReleaseCommandTransfer":
                        ngap.transfer("PDUSessionResourceReleaseCommandTransfer", {"cause": ("nas", "normal-release")})}],
            }, context)

    # ---- user plane ----------------------------------------------------------------------------------------------------

    def tunnelled(self, context, items):
        """The gNB's tunnel for a session; what waited goes there."""
        for item in items:
            transfer = ngap.transfer_of(
                "PDUSessionResourceSetupResponseTransfer", item["pDUSessionResourceSetupResponseTransfer"])
            context.downlink_teid = teid_of(transfer["dLQosFlowPerTNLInformation"]["uPTransportLayerInformation"])
            self.core.user = context
            self.core.n3 += [self.down_the_tunnel(packet) for packet in self.core.waiting]
            self.core.waiting.clear()

    def down_the_tunnel(self, packet, teid=None):
        teid = teid or self.core.user.downlink_teid + self.core.has("another TEID downlink")
        container = b"" if self.core.has("no PDU session container") else bytes([0, 0, 0, 0x85, 1, 0, QFI, 0])
        head = bytes([0x34 if container else 0x30, 255]) + (len(container) + len(packet)).to_bytes(2, "big")
        return head + teid.to_bytes(4, "big") + container + packet

    def page(self):
        if self.core.has("no UE is paged"):
            return
        guti = self.core.user.guti
        tmsi = bytes(4) if self.core.has("another UE is paged") else guti[7:]
        number = int.from_bytes(guti[5:7], "big")
        for gnb in self.core.gnbs:
            gnb.queue.append((0, 60, ngap.encode("Paging", {
                "UEPagingIdentity": ("fiveG-S-TMSI", {
                    "aMFSetID": (number >> 6, 10), "aMFPointer": (number & 63, 6), "fiveG-TMSI": tmsi}),
                "TAIListForPaging": [{"tAI": {"pLMNIdentity": self.core.plmn, "tAC": b"\0\0\1"}}],
            })))

    def user_plane(self, octets):
        """What the UPF sends back for a datagram, or None."""
        kind, teid, sequence, _, packet = gtpu.parse(octets)
        if kind == gtpu.ECHO_REQUEST:
            return gtpu.echo_response(sequence)
        if teid == FORWARDING and not self.core.has("nothing is forwarded"):
            return self.down_the_tunnel(packet, self.core.forwarding)
        if teid != TEID:
            elements = b"\x10" + teid.to_bytes(4, "big") + b"\x85\0\4" + socket.inet_aton(UPF)
            return bytes([0x30, 26]) + len(elements).to_bytes(2, "big") + bytes(4) + elements
        if packet[12:16] != socket.inet_aton(ADDRESS) and not self.core.has("source addresses are not checked"):
            return None
        pong = bytearray(packet)
        pong[12:16], pong[16:20] = packet[16:20], packet[12:16]
        pong[20] = 0
        pong[22:24] = bytes(2)
        pong[22:24] = gtpu.checksum(bytes(pong[20:])).to_bytes(2, "big")
        if self.core.user.downlink_teid is None:
            self.core.waiting.append(bytes(pong))
            return self.page()
        return self.down_the_tunnel(bytes(pong))


class N3:
    """In the place of a gNB's N3 socket. An answer waits behind what the UPF sent of itself."""

    def __init__(self, gnb):
        self.gnb = gnb

    def sendto(self, octets, _peer):
        answer = self.gnb.association.user_plane(octets)
        if answer:
            self.gnb.association.core.n3.append(answer)

    def recvfrom(self, _size):
        if not self.gnb.association.core.n3:
            raise TimeoutError
        return self.gnb.association.core.n3.pop(0), (UPF, gtpu.PORT)

    def settimeout(self, _seconds):
        pass

    def close(self):
        pass


def serve(options):
    """The stand-in behind the kernel's SCTP and UDP on loopback, one association at a time; for trying the scenarios where
    a kernel has SCTP but no core is at hand."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, sctp.IPPROTO_SCTP)
    listener.bind(("127.0.0.1", 38412))
    listener.listen(8)
    n3 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    n3.bind((UPF, gtpu.PORT))
    core, gnbs = Core(options), {}
    while True:
        for ready in select.select([listener, n3, *gnbs], [], [])[0]:
            if ready is listener:
                accepted = sctp.Association.accepted(listener)
                gnbs[accepted] = StandIn(core)
            elif ready is n3:
                octets, source = n3.recvfrom(65536)
                upf = next(iter(gnbs.values()), None) or StandIn(core)
                answer = upf.user_plane(octets)
                if answer:
                    n3.sendto(answer, source)
            else:
                gnb = gnbs[ready]
                try:
                    stream, _, octets = ready.receive(None)
                except sctp.Closed:
                    ready.close()
                    gnbs.pop(ready).close()
                    continue
                gnb.send(octets, stream)
                while gnb.queue:
                    stream, ppid, octets = gnb.queue.pop(0)
                    ready.send(octets, stream, ppid)


def selftest(options, run_all):
    """Every scenario passes against the stand-in, and each planted fault is found; the exit status."""
    Gnb.n3_socket = lambda gnb: N3(gnb)
    bad = 0

    def scenarios(fault, names=()):
        core = Core(options, fault)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            failed = run_all(options, lambda: StandIn(core), names)
        return failed, out.getvalue()

    failed, out = scenarios(None)
    if failed:
        bad += 1
        print("\n".join(line for line in out.splitlines() if line.startswith("not ok")))
    print(f"without a fault: {out.count('ok - ') - out.count('not ok - ')} steps passed, {failed} scenarios failed")
    for fault, name in FAULTS.items():
        failed, out = scenarios(fault, [name])
        found = [line for line in out.splitlines() if line.startswith("not ok")]
        bad += not found
        print(f"{'found' if found else 'MISSED'}: {fault}" + (f" ({found[0].split(': ', 2)[2][:90]})" if found else ""))
    return 1 if bad else 0
