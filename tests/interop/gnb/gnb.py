"""A gNB (TS 38.413) and the radio link of each UE that uses it. Every `expect_` takes the next message of the core,
checks it as a gNB would, and raises `Wrong` if it is not the one that is due.
"""
import socket
import time

import gtpu
import ngap
from ue import Wrong, demand

ANSWER_S = 4.0  # how long the core may take for one answer; in the guest kernel a sleep is 10-20 ms coarse
SILENCE_S = 0.4  # how long to listen where nothing may come


def address_of(bit_string):
    """The IPv4 address of a TransportLayerAddress (TS 38.414 §5.1: four octets, or twenty for both versions)."""
    octets = ngap.octets_of(bit_string)
    demand(len(octets) in (4, 20), f"transport layer address of {len(octets)} octets: no IPv4")
    return socket.inet_ntoa(octets[:4])


class Gnb:
    """One gNB on one association."""

    def __init__(self, association, plmn, tac=1, sst=1, n3_address="127.0.0.1", gnb_id=1, trace=None):
        self.association, self.plmn, self.tac, self.sst = association, plmn, tac, sst
        self.n3_address, self.gnb_id, self.trace = n3_address, gnb_id, trace
        self.links = []
        self.waiting = []  # what came while something else was awaited: (stream, name, IEs)
        self.n3 = None

    # ---- messages ----------------------------------------------------------------------------------------------------

    def send(self, name, ies, stream=0):
        self.send_octets(ngap.encode(name, ies), stream, name)

    def send_octets(self, octets, stream=0, name="octets"):
        if self.trace:
            self.trace(f"> {stream} {name} {octets.hex()}")
        self.association.send(octets, stream)

    def _receive(self, timeout):
        stream, ppid, octets = self.association.receive(timeout)
        if self.trace:
            self.trace(f"< {stream} {octets.hex()}")
        demand(ppid == 60, f"payload protocol identifier {ppid}, not 60")
        try:
            name, ies = ngap.decode(octets)
        except ngap.Undecodable as error:
            raise Wrong(str(error)) from error
        return stream, name, ies

    def next_message(self, matches, timeout=ANSWER_S):
        """The next message for which `matches(name, ies)` holds: (stream, name, IEs). Others wait their turn."""
        for index, (stream, name, ies) in enumerate(self.waiting):
            if matches(name, ies):
                return self.waiting.pop(index)
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                message = self._receive(left)
            except (TimeoutError, socket.timeout):
                others = ", ".join(name for _, name, _ in self.waiting)
                raise Wrong(f"no answer within {timeout:g} s" + (f"; instead came {others}" if others else "")) from None
            if matches(message[1], message[2]):
                return message
            self.waiting.append(message)

    def expect(self, *names, timeout=ANSWER_S):
        """The next message without a UE, which must be one of `names`: (name, IEs)."""
        stream, name, ies = self.next_message(lambda _, ies: "RAN-UE-NGAP-ID" not in ies and "UE-NGAP-IDs" not in ies, timeout)
        demand(name in names, f"came {name} {ies}, awaited {' or '.join(names)}")
        demand(stream == 0, f"{name} came on stream {stream}; what concerns no UE has a stream of its own (TS 38.412 §7)")
        return name, ies

    def silence(self):
        """Nothing may come."""
        try:
            _, name, ies = self.next_message(lambda *_: True, SILENCE_S)
        except Wrong:
            return
        raise Wrong(f"came {name} {ies}, awaited nothing")

    # ---- procedures ----------------------------------------------------------------------------------------------------

    def setup_request(self):
        plmn = self.plmn
        return {
            "GlobalRANNodeID": ("globalGNB-ID", {"pLMNIdentity": plmn, "gNB-ID": ("gNB-ID", (self.gnb_id, 24))}),
            "RANNodeName": "pycrate-gnb",
            "SupportedTAList": [{
                "tAC": self.tac.to_bytes(3, "big"),
                "broadcastPLMNList": [{"pLMNIdentity": plmn, "tAISliceSupportList": [{"s-NSSAI": {"sST": bytes([self.sst])}}]}],
            }],
            "DefaultPagingDRX": "v128",
        }

    def setup(self):
        """NG SETUP (TS 38.413 §8.7.1); the response's IEs."""
        self.send("NGSetupRequest", self.setup_request())
        _, ies = self.expect("NGSetupResponse")
        self.amf = ies
        return ies

    def location(self):
        cell = {"pLMNIdentity": self.plmn, "nRCellIdentity": (self.gnb_id << 12, 36)}
        return "userLocationInformationNR", {
            "nR-CGI": cell, "tAI": {"pLMNIdentity": self.plmn, "tAC": self.tac.to_bytes(3, "big")}}

    def n3_socket(self):
        if self.n3 is None:
            self.n3 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.n3.bind((self.n3_address, gtpu.PORT))
            self.n3.settimeout(ANSWER_S)
        return self.n3

    def n3_receive(self, timeout=ANSWER_S):
        """The next datagram from the UPF, and its sender. The UPF may ask at any time whether the path stands (TS 29.281 §7.2.1)."""
        n3 = self.n3_socket()
        n3.settimeout(timeout)
        while True:
            octets, source = n3.recvfrom(65536)
            if octets[1:2] != bytes([gtpu.ECHO_REQUEST]):
                return octets, source[0]
            n3.sendto(gtpu.echo_response(gtpu.parse(octets)[2]), source)

    def n3_next(self):
        """The next message from the UPF, parsed."""
        try:
            return gtpu.parse(self.n3_receive()[0])
        except (TimeoutError, socket.timeout):
            raise Wrong("nothing came on N3") from None

    def n3_exchange(self, octets, peer, timeout=ANSWER_S):
        """Send one datagram to the UPF and parse the next one from it."""
        self.n3_socket().sendto(octets, (peer, gtpu.PORT))
        try:
            answer, source = self.n3_receive(timeout)
        except (TimeoutError, socket.timeout):
            raise Wrong(f"no answer from {peer}:{gtpu.PORT} within {timeout:g} s") from None
        demand(source == peer, f"the answer came from {source}, not {peer}")
        try:
            return gtpu.parse(answer)
        except gtpu.Malformed as error:
            raise Wrong(f"{answer.hex()}: {error}") from error

    def close(self):
        if self.n3:
            self.n3.close()
        self.association.close()

    def link(self, ue):
        """A new radio link for `ue`."""
        self.links.append(Link(self, ue, len(self.links) + 1))
        return self.links[-1]


class Link:
    """One UE's logical NG connection: from the initial message to the release."""

    def __init__(self, gnb, ue, ran_id):
        self.gnb, self.ue, self.ran_id = gnb, ue, ran_id
        self.amf_id = None
        self.stream = 1 + ran_id % 7  # one stream a UE; never stream 0
        self.core_stream = None
        self.security_capabilities = None  # as the core gave them
        self.tunnels = {}  # session: (UPF address, uplink TEID, QFI, downlink TEID)

    # ---- up ------------------------------------------------------------------------------------------------------------

    def initial(self, nas, s_tmsi=None, cause="mo-Signalling"):
        ies = {
            "RAN-UE-NGAP-ID": self.ran_id,
            "NAS-PDU": nas,
            "UserLocationInformation": self.gnb.location(),
            "RRCEstablishmentCause": cause,
        }
        if s_tmsi is not None:
            number = int.from_bytes(s_tmsi[:2], "big")
            ies["FiveG-S-TMSI"] = {"aMFSetID": (number >> 6, 10), "aMFPointer": (number & 63, 6), "fiveG-TMSI": s_tmsi[2:]}
        ies["UEContextRequest"] = "requested"
        self.gnb.send("InitialUEMessage", ies, self.stream)

    def ids(self):
        return {"AMF-UE-NGAP-ID": self.amf_id, "RAN-UE-NGAP-ID": self.ran_id}

    def up(self, nas):
        ies = {**self.ids(), "NAS-PDU": nas, "UserLocationInformation": self.gnb.location()}
        self.gnb.send("UplinkNASTransport", ies, self.stream)

    # ---- down ----------------------------------------------------------------------------------------------------------

    def _mine(self, _, ies):
        if ies.get("RAN-UE-NGAP-ID") == self.ran_id:
            return True
        kind, value = ies.get("UE-NGAP-IDs", (None, None))
        if kind == "uE-NGAP-ID-pair":
            return value["rAN-UE-NGAP-ID"] == self.ran_id
        return kind == "aMF-UE-NGAP-ID" and value == self.amf_id

    def expect(self, *names, timeout=ANSWER_S):
        """The next message for this UE, which must be one of `names`: (name, IEs).

        A configuration update may come between any two steps; it is answered here."""
        while True:
            stream, name, ies = self.gnb.next_message(self._mine, timeout)
            if name == "DownlinkNASTransport" and self._configuration_update(ies):
                continue
            demand(name in names, f"came {name} {ies}, awaited {' or '.join(names)}")
            demand(stream != 0, f"{name} for a UE came on stream 0 (TS 38.412 §7)")
            demand(self.core_stream in (None, stream), f"{name} came on stream {stream}, earlier ones on {self.core_stream}")
            self.core_stream = stream
            amf_id = ies.get("AMF-UE-NGAP-ID")
            if amf_id is not None:
                demand(self.amf_id in (None, amf_id), f"AMF-UE-NGAP-ID {amf_id}, earlier {self.amf_id}")
                self.amf_id = amf_id
            return name, ies

    def _configuration_update(self, ies):
        """Whether the NAS message within was a configuration update (tried on a copy of the UE's downlink count)."""
        nas, ue = ies["NAS-PDU"], self.ue
        if ue.keys is None or nas[1] & 0x0F == 0:
            return False
        count = ue.downlink_count
        try:
            answer = ue.updated(nas)
        except Wrong:
            ue.downlink_count = count
            return False
        if answer is not None:
            self.up(answer)
        return True

    def nas(self):
        """The NAS message of the DOWNLINK NAS TRANSPORT that is due."""
        return self.expect("DownlinkNASTransport")[1]["NAS-PDU"]

    # ---- procedures ----------------------------------------------------------------------------------------------------

    def context_set_up(self, ies):
        """INITIAL CONTEXT SETUP REQUEST checked and answered; the NAS message that it carried, if any."""
        for needed in ("GUAMI", "AllowedNSSAI", "UESecurityCapabilities", "SecurityKey"):
            demand(needed in ies, f"INITIAL CONTEXT SETUP REQUEST without {needed} (TS 38.413 §9.2.2.1)")
        key = ngap.octets_of(ies["SecurityKey"])
        demand(key == self.ue.k_gnb(), f"K_gNB {key.hex()}, the UE has {self.ue.k_gnb().hex()}")
        # TS 38.413 §9.3.1.86: bit 1 stands for algorithm 1, unlike in NAS, where the first bit is algorithm 0.
        encryption = ngap.octets_of(ies["UESecurityCapabilities"]["nRencryptionAlgorithms"])[0]
        awaited = self.ue.capability[0] << 1 & 0xE0
        demand(encryption & 0xE0 == awaited, f"NR encryption algorithms {encryption:#x}, the UE sent {awaited:#x}")
        self.security_capabilities = ies["UESecurityCapabilities"]
        answer = self.ids()
        sessions = ies.get("PDUSessionResourceSetupListCxtReq")
        nas = ies.get("NAS-PDU")
        if sessions:
            demand("UEAggregateMaximumBitRate" in ies, "sessions without UE-AMBR (TS 38.413 §9.2.2.1)")
            answer["PDUSessionResourceSetupListCxtRes"] = [
                {"pDUSessionID": item["pDUSessionID"],
                 "pDUSessionResourceSetupResponseTransfer": self._tunnel(item["pDUSessionID"], item["pDUSessionResourceSetupRequestTransfer"])}
                for item in sessions]
        self.gnb.send("InitialContextSetupResponse", answer, self.stream)
        return nas

    def take_tunnel(self, session, request, downlink_teid):
        """Take the core's end of the tunnel; the QoS flows to set up."""
        request = ngap.transfer_of("PDUSessionResourceSetupRequestTransfer", request)
        tunnel, kind, flows = request.get(139), request.get(134), request.get(136)
        demand(tunnel is not None and tunnel[0] == "gTPTunnel", "no UL NG-U UP TNL information")
        demand(kind == "ipv4", f"PDU session type {kind}, asked for ipv4")
        demand(flows, "no QoS flow to set up")
        qfi = flows[0]["qosFlowIdentifier"]
        uplink_teid = int.from_bytes(tunnel[1]["gTP-TEID"], "big")
        demand(uplink_teid != 0, "TEID 0 is for signalling (TS 29.281 §5.1)")
        self.tunnels[session] = address_of(tunnel[1]["transportLayerAddress"]), uplink_teid, qfi, downlink_teid
        return flows

    def _tunnel(self, session, request):
        """Take the core's end of the tunnel, offer ours; the response transfer."""
        downlink_teid = 0x1000 * self.ran_id + session
        flows = self.take_tunnel(session, request, downlink_teid)
        return ngap.transfer("PDUSessionResourceSetupResponseTransfer", {
            "dLQosFlowPerTNLInformation": {
                "uPTransportLayerInformation": ("gTPTunnel", {
                    "transportLayerAddress": ngap.bits(socket.inet_aton(self.gnb.n3_address)),
                    "gTP-TEID": downlink_teid.to_bytes(4, "big")}),
                "associatedQosFlowList": [{"qosFlowIdentifier": flow["qosFlowIdentifier"]} for flow in flows],
            }})

    def session_set_up(self):
        """PDU SESSION RESOURCE SETUP REQUEST awaited and answered; (session, NAS message)."""
        _, ies = self.expect("PDUSessionResourceSetupRequest")
        [item] = ies["PDUSessionResourceSetupListSUReq"]
        session = item["pDUSessionID"]
        response = self._tunnel(session, item["pDUSessionResourceSetupRequestTransfer"])
        self.gnb.send("PDUSessionResourceSetupResponse", {
            **self.ids(),
            "PDUSessionResourceSetupListSURes": [
                {"pDUSessionID": session, "pDUSessionResourceSetupResponseTransfer": response}],
        }, self.stream)
        nas = item.get("pDUSessionNAS-PDU") or ies.get("NAS-PDU")
        demand(nas is not None, "no NAS message for the UE")
        return session, nas

    def session_torn_down(self):
        """PDU SESSION RESOURCE RELEASE COMMAND awaited and answered; its NAS message."""
        _, ies = self.expect("PDUSessionResourceReleaseCommand")
        sessions = [item["pDUSessionID"] for item in ies["PDUSessionResourceToReleaseListRelCmd"]]
        self.gnb.send("PDUSessionResourceReleaseResponse", {
            **self.ids(),
            "PDUSessionResourceReleasedListRelRes": [
                {"pDUSessionID": session,
                 "pDUSessionResourceReleaseResponseTransfer": ngap.transfer("PDUSessionResourceReleaseResponseTransfer", {})}
                for session in sessions],
        }, self.stream)
        for session in sessions:
            self.tunnels.pop(session, None)
        demand("NAS-PDU" in ies, "PDU SESSION RESOURCE RELEASE COMMAND without the UE's NAS message")
        return ies["NAS-PDU"]

    def released(self, sessions=()):
        """UE CONTEXT RELEASE COMMAND awaited and answered; its cause."""
        _, ies = self.expect("UEContextReleaseCommand")
        answer = self.ids()
        if sessions:
            answer["PDUSessionResourceListCxtRelCpl"] = [{"pDUSessionID": session} for session in sessions]
        self.gnb.send("UEContextReleaseComplete", answer, self.stream)
        return ies["Cause"]

    def ask_release(self, sessions=()):
        """UE CONTEXT RELEASE REQUEST: the UE has been quiet (TS 38.413 §8.3.2)."""
        ies = self.ids()
        if sessions:
            ies["PDUSessionResourceListCxtRelReq"] = [{"pDUSessionID": session} for session in sessions]
        ies["Cause"] = ("radioNetwork", "user-inactivity")
        self.gnb.send("UEContextReleaseRequest", ies, self.stream)

    # ---- user plane ------------------------------------------------------------------------------------------------------

    def ping(self, session, source, destination, sequence=1):
        """One ping from the UE's address through its tunnel; the answer checked, headers and all."""
        peer, uplink_teid, qfi, downlink_teid = self.tunnels[session]
        packet = gtpu.ping(source, destination, self.ran_id, sequence)
        kind, teid, _, extensions, inner = self.gnb.n3_exchange(gtpu.g_pdu(uplink_teid, qfi, packet), peer)
        demand(kind == gtpu.G_PDU, f"GTP-U message {kind}, not a G-PDU")
        demand(teid == downlink_teid, f"TEID {teid:#x}, the gNB gave {downlink_teid:#x}")
        container = extensions.get(gtpu.CONTAINER)
        demand(container is not None and container[0] >> 4 == 0, "no downlink PDU session container (TS 38.415 §5.5.2.1)")
        demand(container[1] & 0x3F == qfi, f"QFI {container[1] & 0x3F}, not {qfi}")
        demand(gtpu.is_pong(inner, packet), f"not the echo reply: {inner.hex()}")
