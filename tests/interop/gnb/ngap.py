"""NGAP (TS 38.413) by pycrate's ASN.1 codec: messages as (kind, name, {IE name: value})."""
from pycrate_asn1dir import NGAP

_PDU = NGAP.NGAP_PDU_Descriptions.NGAP_PDU

# name: (outcome, procedure code, criticality) — TS 38.413 §9.3.1 and the elementary procedures of §9.4.3
MESSAGES = {
    "NGSetupRequest": ("initiatingMessage", 21, "reject"),
    "InitialUEMessage": ("initiatingMessage", 15, "ignore"),
    "UplinkNASTransport": ("initiatingMessage", 46, "ignore"),
    "InitialContextSetupResponse": ("successfulOutcome", 14, "reject"),
    "PDUSessionResourceSetupResponse": ("successfulOutcome", 29, "reject"),
    "PDUSessionResourceReleaseResponse": ("successfulOutcome", 28, "reject"),
    "UEContextReleaseRequest": ("initiatingMessage", 42, "ignore"),
    "UEContextReleaseComplete": ("successfulOutcome", 41, "reject"),
    "UERadioCapabilityInfoIndication": ("initiatingMessage", 44, "ignore"),
    "NGReset": ("initiatingMessage", 20, "reject"),
    "PathSwitchRequest": ("initiatingMessage", 25, "reject"),
    "HandoverRequired": ("initiatingMessage", 12, "reject"),
    "HandoverRequestAcknowledge": ("successfulOutcome", 13, "reject"),
    "HandoverFailure": ("unsuccessfulOutcome", 13, "reject"),
    "HandoverNotify": ("initiatingMessage", 11, "ignore"),
    "HandoverCancel": ("initiatingMessage", 10, "reject"),
    "UplinkRANStatusTransfer": ("initiatingMessage", 49, "ignore"),
    # what a core sends; the stand-in core encodes these
    "NGSetupResponse": ("successfulOutcome", 21, "reject"),
    "NGSetupFailure": ("unsuccessfulOutcome", 21, "reject"),
    "DownlinkNASTransport": ("initiatingMessage", 4, "ignore"),
    "InitialContextSetupRequest": ("initiatingMessage", 14, "reject"),
    "PDUSessionResourceSetupRequest": ("initiatingMessage", 29, "reject"),
    "PDUSessionResourceReleaseCommand": ("initiatingMessage", 28, "reject"),
    "UEContextReleaseCommand": ("initiatingMessage", 41, "reject"),
    "ErrorIndication": ("initiatingMessage", 9, "ignore"),
    "NGResetAcknowledge": ("successfulOutcome", 20, "reject"),
    "Paging": ("initiatingMessage", 24, "ignore"),
    "PathSwitchRequestAcknowledge": ("successfulOutcome", 25, "reject"),
    "HandoverRequest": ("initiatingMessage", 13, "reject"),
    "HandoverCommand": ("successfulOutcome", 12, "reject"),
    "HandoverPreparationFailure": ("unsuccessfulOutcome", 12, "reject"),
    "HandoverCancelAcknowledge": ("successfulOutcome", 10, "reject"),
    "DownlinkRANStatusTransfer": ("initiatingMessage", 7, "ignore"),
}

# name: (protocol IE identifier, criticality where we send it)
IES = {
    "AllowedNSSAI": (0, "reject"),
    "AMFName": (1, "reject"),
    "AMFSetID": (3, "ignore"),
    "AMF-UE-NGAP-ID": (10, "reject"),
    "Cause": (15, "ignore"),
    "CriticalityDiagnostics": (19, "ignore"),
    "DefaultPagingDRX": (21, "ignore"),
    "FiveG-S-TMSI": (26, "reject"),
    "GlobalRANNodeID": (27, "reject"),
    "GUAMI": (28, "reject"),
    "NAS-PDU": (38, "reject"),
    "PDUSessionResourceReleasedListRelRes": (70, "ignore"),
    "PDUSessionResourceSetupListCxtReq": (71, "reject"),
    "PDUSessionResourceSetupListCxtRes": (72, "ignore"),
    "PDUSessionResourceSetupListSUReq": (74, "reject"),
    "PDUSessionResourceSetupListSURes": (75, "ignore"),
    "PDUSessionResourceToReleaseListRelCmd": (79, "reject"),
    "PLMNSupportList": (80, "reject"),
    "RAN-UE-NGAP-ID": (85, "reject"),
    "RANNodeName": (82, "ignore"),
    "RelativeAMFCapacity": (86, "ignore"),
    "ResetType": (88, "reject"),
    "RRCEstablishmentCause": (90, "ignore"),
    "SecurityKey": (94, "reject"),
    "ServedGUAMIList": (96, "reject"),
    "SupportedTAList": (102, "reject"),
    "UE-associatedLogicalNG-connectionList": (111, "ignore"),
    "UEAggregateMaximumBitRate": (110, "reject"),
    "UEContextRequest": (112, "ignore"),
    "UE-NGAP-IDs": (114, "reject"),
    "UERadioCapability": (117, "ignore"),
    "UESecurityCapabilities": (119, "reject"),
    "UserLocationInformation": (121, "reject"),
    "PDUSessionResourceListCxtRelReq": (133, "reject"),
    "PDUSessionResourceListCxtRelCpl": (60, "ignore"),
    "HandoverType": (29, "reject"),
    "PDUSessionResourceAdmittedList": (53, "ignore"),
    "PDUSessionResourceHandoverList": (59, "ignore"),
    "PDUSessionResourceListHORqd": (61, "reject"),
    "PDUSessionResourceSetupListHOReq": (73, "reject"),
    "PDUSessionResourceSwitchedList": (77, "ignore"),
    "PDUSessionResourceToBeSwitchedDLList": (76, "reject"),
    "RANStatusTransfer-TransparentContainer": (84, "reject"),
    "SecurityContext": (93, "reject"),
    "SourceAMF-UE-NGAP-ID": (100, "reject"),
    "SourceToTarget-TransparentContainer": (101, "reject"),
    "TAIListForPaging": (103, "ignore"),
    "TargetID": (105, "reject"),
    "TargetToSource-TransparentContainer": (106, "reject"),
    "UEPagingIdentity": (115, "ignore"),
}
_NAMES = {identifier: name for name, (identifier, _) in IES.items()}

# pycrate names an element's type, which is not always its element's name.
_TYPES = {
    "DefaultPagingDRX": "PagingDRX",
    "AMFSetID": "AMFSetID",
    "SourceAMF-UE-NGAP-ID": "AMF-UE-NGAP-ID",
}

# In a few messages an element has another criticality than in the others (TS 38.413 §9.2).
_CRITICALITIES = {
    ("PathSwitchRequest", "UserLocationInformation"): "ignore",
    ("PathSwitchRequest", "UESecurityCapabilities"): "ignore",
    ("HandoverRequestAcknowledge", "AMF-UE-NGAP-ID"): "ignore",
    ("HandoverRequestAcknowledge", "RAN-UE-NGAP-ID"): "ignore",
    ("HandoverFailure", "AMF-UE-NGAP-ID"): "ignore",
    ("HandoverNotify", "UserLocationInformation"): "ignore",
    ("PathSwitchRequestAcknowledge", "AMF-UE-NGAP-ID"): "ignore",
    ("PathSwitchRequestAcknowledge", "RAN-UE-NGAP-ID"): "ignore",
    ("HandoverCancelAcknowledge", "AMF-UE-NGAP-ID"): "ignore",
    ("HandoverCancelAcknowledge", "RAN-UE-NGAP-ID"): "ignore",
    ("HandoverPreparationFailure", "AMF-UE-NGAP-ID"): "ignore",
    ("HandoverPreparationFailure", "RAN-UE-NGAP-ID"): "ignore",
}


class Undecodable(Exception):
    """Octets that are not an NGAP message."""


def encode(name, ies):
    """The octets of message `name`. `ies` is {IE name: value}, in the order of the message's table."""
    outcome, procedure, criticality = MESSAGES[name]
    items = []
    for ie, value in ies.items():
        identifier, ie_criticality = IES[ie]
        ie_criticality = _CRITICALITIES.get((name, ie), ie_criticality)
        items.append({"id": identifier, "criticality": ie_criticality, "value": (_TYPES.get(ie, ie), value)})
    body = {"procedureCode": procedure, "criticality": criticality, "value": (name, {"protocolIEs": items})}
    _PDU.set_val((outcome, body))
    return _PDU.to_aper()


def decode(octets):
    """(message name, {IE name or number: value}); octets that do not decode, or decode only in part, are refused."""
    try:
        _PDU.from_aper(octets)
        _, body = _PDU.get_val()
        name, content = body["value"]
        ies = {}
        for item in content["protocolIEs"]:
            ies[_NAMES.get(item["id"], item["id"])] = item["value"][1]
    except Exception as error:  # pycrate raises many kinds
        raise Undecodable(f"{octets.hex()}: {error!r}") from error
    if _PDU.to_aper() != octets:
        raise Undecodable(f"{octets.hex()}: decoded and encoded again it differs: {_PDU.to_aper().hex()}")
    return name, ies


def transfer(name, value):
    """The octets of a transfer element (TS 38.413 §9.3.4), which the AMF passes through to the SMF."""
    kind = getattr(NGAP.NGAP_IEs, name)
    kind.set_val(value)
    return kind.to_aper()


def transfer_of(name, octets):
    """The value of a transfer element; its IEs, if any, as {IE number: value}."""
    if isinstance(octets, tuple):  # pycrate has looked inside already
        value = octets[1]
    else:
        kind = getattr(NGAP.NGAP_IEs, name)
        kind.from_aper(octets)
        value = kind.get_val()
    if "protocolIEs" in value:
        return {item["id"]: item["value"][1] for item in value["protocolIEs"]}
    return value


def bits(octets):
    """Octets as pycrate's BIT STRING."""
    return int.from_bytes(octets, "big"), 8 * len(octets)


def octets_of(bit_string):
    value, length = bit_string
    return value.to_bytes((length + 7) // 8, "big")
