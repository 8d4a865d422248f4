"""A UE moves between two gNBs: Xn handover (TS 38.413 §8.4.4) and N2 handover (§8.4.1 to §8.4.3, §8.4.5), as the gNBs see it.

Both gNBs share one N3 socket, for both are at one address; their tunnels differ.
"""
import socket

import gtpu
import ngap
from gnb import address_of
from ue import demand

# What the gNBs tell each other through the core, which must not look inside: the least that TS 38.331 §11.2.2 allows, in PER.
PREPARATION = bytes.fromhex("0000")  # HandoverPreparationInformation without capabilities
COMMAND = bytes.fromhex("00200000")  # HandoverCommand with an empty RRCReconfiguration
STATUS = {"dRBsSubjectToStatusTransferList": [{
    "dRB-ID": 1,
    "dRBStatusUL": ("dRBStatusUL12", {"uL-COUNTValue": {"pDCP-SN12": 7, "hFN-PDCP-SN12": 3}}),
    "dRBStatusDL": ("dRBStatusDL12", {"dL-COUNTValue": {"pDCP-SN12": 9, "hFN-PDCP-SN12": 2}}),
}]}
INTRA_5GS = "intra5gs"


def tunnel_of(gnb, teid):
    return "gTPTunnel", {"transportLayerAddress": ngap.bits(socket.inet_aton(gnb.n3_address)), "gTP-TEID": teid.to_bytes(4, "big")}


def to_target(target):
    """The source's transparent container (TS 38.413 §9.3.1.29)."""
    cell = "nR-CGI", target.location()[1]["nR-CGI"]
    visited = "nGRANCell", {"globalCellID": cell, "cellType": {"cellSize": "medium"}, "timeUEStayedInCell": 10}
    return ngap.transfer("SourceNGRANNode_ToTargetNGRANNode_TransparentContainer", {
        "rRCContainer": PREPARATION, "targetCell-ID": cell, "uEHistoryInformation": [{"lastVisitedCellInformation": visited}]})


def to_source():
    """The target's transparent container (TS 38.413 §9.3.1.30)."""
    return ngap.transfer("TargetNGRANNode_ToSourceNGRANNode_TransparentContainer", {"rRCContainer": COMMAND})


def downlink_teid(link, session):
    """Each gNB's tunnels have numbers of their own, for both receive on one socket."""
    return 0x100000 * link.gnb.gnb_id + 0x1000 * link.ran_id + session


def forwarding_teid(link, session):
    return downlink_teid(link, session) + 0x800


def fresh_keys(link, context):
    """The security context that a target gets: the UE must come to the same NH from the NCC alone (TS 33.501 §6.9.2.1.1)."""
    ncc, nh = context["nextHopChainingCount"], ngap.octets_of(context["nextHopNH"])
    awaited = link.ue.next_hop(ncc)
    demand(nh == awaited, f"NH {nh.hex()} for NCC {ncc}, the UE derives {awaited.hex()}")


# ---- Xn: the UE is at the target already ----------------------------------------------------------------------------


def path_switch(source, target):
    """PATH SWITCH REQUEST for all sessions of `source`, and its acknowledgement checked; the link at the target."""
    link = target.link(source.ue)
    sessions = []
    for session, (peer, teid, qfi, _) in source.tunnels.items():
        link.tunnels[session] = peer, teid, qfi, downlink_teid(link, session)
        sessions.append({"pDUSessionID": session, "pathSwitchRequestTransfer": ngap.transfer("PathSwitchRequestTransfer", {
            "dL-NGU-UP-TNLInformation": tunnel_of(target, downlink_teid(link, session)),
            "qosFlowAcceptedList": [{"qosFlowIdentifier": qfi}]})})
    target.send("PathSwitchRequest", {
        "RAN-UE-NGAP-ID": link.ran_id,
        "SourceAMF-UE-NGAP-ID": source.amf_id,
        "UserLocationInformation": target.location(),
        "UESecurityCapabilities": source.security_capabilities,
        "PDUSessionResourceToBeSwitchedDLList": sessions,
    }, link.stream)
    _, ies = link.expect("PathSwitchRequestAcknowledge")
    for needed in ("SecurityContext", "PDUSessionResourceSwitchedList", "AllowedNSSAI"):
        demand(needed in ies, f"PATH SWITCH REQUEST ACKNOWLEDGE without {needed} (TS 38.413 §9.2.3.9)")
    fresh_keys(link, ies["SecurityContext"])
    switched = {item["pDUSessionID"]: item["pathSwitchRequestAcknowledgeTransfer"] for item in ies["PDUSessionResourceSwitchedList"]}
    demand(set(switched) == set(source.tunnels), f"switched {sorted(switched)}, asked for {sorted(source.tunnels)}")
    for session, transfer in switched.items():
        moved = ngap.transfer_of("PathSwitchRequestAcknowledgeTransfer", transfer).get("uL-NGU-UP-TNLInformation")
        if moved:  # the UPF may have given another tunnel for the uplink
            _, _, qfi, own = link.tunnels[session]
            teid = int.from_bytes(moved[1]["gTP-TEID"], "big")
            link.tunnels[session] = address_of(moved[1]["transportLayerAddress"]), teid, qfi, own
    link.security_capabilities = source.security_capabilities
    return link


# ---- N2: the core prepares the target ------------------------------------------------------------------------------------


def require(source, target, gnb_id=None):
    """HANDOVER REQUIRED towards `target`, without a path between the gNBs."""
    plmn = source.gnb.plmn
    source.gnb.send("HandoverRequired", {
        **source.ids(),
        "HandoverType": INTRA_5GS,
        "Cause": ("radioNetwork", "handover-desirable-for-radio-reason"),
        "TargetID": ("targetRANNodeID", {
            "globalRANNodeID": ("globalGNB-ID", {
                "pLMNIdentity": plmn, "gNB-ID": ("gNB-ID", (target.gnb_id if gnb_id is None else gnb_id, 24))}),
            "selectedTAI": {"pLMNIdentity": plmn, "tAC": target.tac.to_bytes(3, "big")}}),
        "PDUSessionResourceListHORqd": [
            {"pDUSessionID": session, "handoverRequiredTransfer": ngap.transfer("HandoverRequiredTransfer", {})}
            for session in source.tunnels],
        "SourceToTarget-TransparentContainer": to_target(target),
    }, source.stream)


def request(source, target):
    """HANDOVER REQUEST awaited at the target and checked; the link to be, with the core's tunnels."""
    link = target.link(source.ue)
    stream, name, ies = target.next_message(lambda name, _: name == "HandoverRequest")
    demand(stream != 0, f"{name} for a UE came on stream 0 (TS 38.412 §7)")
    for needed in ("AMF-UE-NGAP-ID", "HandoverType", "Cause", "UEAggregateMaximumBitRate", "UESecurityCapabilities", "SecurityContext",
                   "PDUSessionResourceSetupListHOReq", "AllowedNSSAI", "SourceToTarget-TransparentContainer", "GUAMI"):
        demand(needed in ies, f"HANDOVER REQUEST without {needed} (TS 38.413 §9.2.3.4)")
    demand(ies["SourceToTarget-TransparentContainer"] == to_target(target), "the source's container was changed")
    demand(ies["UESecurityCapabilities"] == source.security_capabilities, "other security capabilities than the source got")
    fresh_keys(link, ies["SecurityContext"])
    link.amf_id, link.core_stream = ies["AMF-UE-NGAP-ID"], stream
    link.security_capabilities = ies["UESecurityCapabilities"]
    for item in ies["PDUSessionResourceSetupListHOReq"]:
        link.take_tunnel(item["pDUSessionID"], item["handoverRequestTransfer"], downlink_teid(link, item["pDUSessionID"]))
    demand(set(link.tunnels) == set(source.tunnels), f"sessions {sorted(link.tunnels)}, the source has {sorted(source.tunnels)}")
    return link


def acknowledge(link):
    """HANDOVER REQUEST ACKNOWLEDGE: all sessions admitted, with a tunnel for what the source forwards."""
    link.gnb.send("HandoverRequestAcknowledge", {
        **link.ids(),
        "PDUSessionResourceAdmittedList": [
            {"pDUSessionID": session, "handoverRequestAcknowledgeTransfer": ngap.transfer("HandoverRequestAcknowledgeTransfer", {
                "dL-NGU-UP-TNLInformation": tunnel_of(link.gnb, own),
                "dLForwardingUP-TNLInformation": tunnel_of(link.gnb, forwarding_teid(link, session)),
                "qosFlowSetupResponseList": [{"qosFlowIdentifier": qfi, "dataForwardingAccepted": "data-forwarding-accepted"}]})}
            for session, (_, _, qfi, own) in link.tunnels.items()],
        "TargetToSource-TransparentContainer": to_source(),
    }, link.stream)


def refuse(link):
    link.gnb.send("HandoverFailure", {
        "AMF-UE-NGAP-ID": link.amf_id, "Cause": ("radioNetwork", "no-radio-resources-available-in-target-cell")}, link.stream)


def commanded(source):
    """HANDOVER COMMAND awaited at the source and checked; {session: (UPF address, TEID) to forward to}."""
    _, ies = source.expect("HandoverCommand")
    demand(ies.get("TargetToSource-TransparentContainer") == to_source(), "the target's container was changed or is missing")
    tunnels = {}
    for item in ies.get("PDUSessionResourceHandoverList", []):
        transfer = ngap.transfer_of("HandoverCommandTransfer", item["handoverCommandTransfer"])
        tunnel = transfer.get("dLForwardingUP-TNLInformation")
        if tunnel:
            address = address_of(tunnel[1]["transportLayerAddress"])
            tunnels[item["pDUSessionID"]] = address, int.from_bytes(tunnel[1]["gTP-TEID"], "big")
    return tunnels


def pass_status(source, link):
    """The counts of the radio bearers go from the source to the target, unchanged."""
    source.gnb.send("UplinkRANStatusTransfer", {**source.ids(), "RANStatusTransfer-TransparentContainer": STATUS}, source.stream)
    _, ies = link.expect("DownlinkRANStatusTransfer")
    demand(ies["RANStatusTransfer-TransparentContainer"] == STATUS, "the status was changed")


def arrived(link):
    link.gnb.send("HandoverNotify", {**link.ids(), "UserLocationInformation": link.gnb.location()}, link.stream)


# ---- the user plane meanwhile ----------------------------------------------------------------------------------------------


def forwarded(link, tunnel, session, packet):
    """A packet that the source forwards through the core reaches the target's tunnel for it."""
    peer, teid = tunnel
    _, _, qfi, _ = link.tunnels[session]
    kind, came_on, _, _, inner = link.gnb.n3_exchange(gtpu.g_pdu(teid, qfi, packet, downlink=True), peer)
    demand(kind == gtpu.G_PDU and inner == packet, f"GTP-U message {kind}: not what was forwarded")
    demand(came_on == forwarding_teid(link, session), f"TEID {came_on:#x}, the target gave {forwarding_teid(link, session):#x}")


def end_marker(source, session):
    """END MARKER on the former tunnel (TS 23.502 §4.9.1.2.2 step 6)."""
    _, _, _, own = source.tunnels[session]
    kind, teid, _, _, _ = source.gnb.n3_next()
    demand(kind == gtpu.END_MARKER, f"GTP-U message {kind}, awaited an END MARKER")
    demand(teid == own, f"END MARKER for TEID {teid:#x}, the former tunnel is {own:#x}")
