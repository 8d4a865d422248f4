#!/usr/bin/env python3
"""Judges the octets of PLMN identities in wire/ids/testdata/plmn.txt: pycrate encodes those of NAS, tshark reads both.

For each line pycrate encodes an INITIAL UE MESSAGE whose user location has the octets of NGAP (TS 38.413 §9.3.3.5) and whose
NAS message, a REGISTRATION REQUEST with a SUCI, has those of NAS (TS 24.501 §9.11.3.4). tshark must read the same MCC and MNC at
every place. With octets in the order of the other protocol it must not: that is checked, too.

Exit status: 0 good, 1 a line is wrong, 77 tshark is not installed.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from pycrate_asn1dir import NGAP
from pycrate_mobile.TS24008_IE import PLMN

VECTORS = pathlib.Path(__file__).parents[2] / "wire/ids/testdata/plmn.txt"
# The places of the message that hold a PLMN, as tshark calls them: NR CGI, TAI, SUCI.
PLACES = ["e212.nrcgi", "e212.5gstai", "e212"]


def message(nas, ngap):
    """An INITIAL UE MESSAGE with both."""
    place = {
        "nR-CGI": {"pLMNIdentity": ngap, "nRCellIdentity": (1, 36)},
        "tAI": {"pLMNIdentity": ngap, "tAC": b"\0\0\1"},
    }
    suci = b"\x01" + nas + b"\xf0\xff\0\0\x10\x32\x54\x76\x98"
    registration = b"\x7e\0\x41\x79" + len(suci).to_bytes(2, "big") + suci
    ies = [
        (85, "reject", "RAN-UE-NGAP-ID", 1),
        (38, "reject", "NAS-PDU", registration),
        (121, "reject", "UserLocationInformation", ("userLocationInformationNR", place)),
        (90, "ignore", "RRCEstablishmentCause", "mo-Signalling"),
    ]
    ies = [{"id": i, "criticality": c, "value": (name, value)} for i, c, name, value in ies]
    pdu = NGAP.NGAP_PDU_Descriptions.NGAP_PDU
    value = ("InitialUEMessage", {"protocolIEs": ies})
    pdu.set_val(("initiatingMessage", {"procedureCode": 15, "criticality": "ignore", "value": value}))
    return pdu.to_aper()


def networks(octets, folder):
    """The PLMN that tshark reads at each place, as (MCC, MNC)."""
    capture = pathlib.Path(folder) / "one.pcap"
    text = "000000 " + octets.hex(" ")
    convert = ["text2pcap", "-q", "-S", "38412,38412,60", "-", str(capture)]
    subprocess.run(convert, input=text, text=True, check=True, capture_output=True)
    fields = [f"{place}.{part}" for place in PLACES for part in ("mcc", "mnc")]
    arguments = ["tshark", "-n", "-r", str(capture), "-d", "sctp.ppi==60,ngap", "-T", "fields"]
    arguments += [word for field in fields for word in ("-e", field)]
    line = subprocess.run(arguments, text=True, check=True, capture_output=True).stdout.rstrip("\n")
    values = line.split("\t")
    return [(values[i], values[i + 1]) for i in range(0, len(values), 2)]


def main():
    if not shutil.which("tshark") or not shutil.which("text2pcap"):
        print("tshark is not installed")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for line in VECTORS.read_text().splitlines():
            if line.startswith("#"):
                continue
            plmn, nas, ngap = line.split(" ")
            mcc, mnc = plmn.split("/")
            nas, ngap = bytes.fromhex(nas), bytes.fromhex(ngap)
            encoder = PLMN()
            encoder.encode(mcc + mnc)
            meant = [(str(int(mcc)), str(int(mnc)))] * len(PLACES)
            found = networks(message(nas, ngap), folder)
            if encoder.to_bytes() != nas or found != meant:
                print(f"WRONG: {line}: pycrate writes {encoder.to_bytes().hex()} in NAS, tshark reads {found}")
                failed += 1
            if nas != ngap and any(n == m for n, m in zip(networks(message(ngap, nas), folder), meant)):
                print(f"WRONG: {line}: the order of the other protocol is not noticed")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
