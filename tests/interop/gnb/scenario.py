#!/usr/bin/env python3
"""A gNB and a UE that share no code with the core take it through its procedures, and judge each answer.

    scenario.py --amf ADDRESS --n3 OWN-ADDRESS --imsi IMSI --k HEX --opc HEX [--ping ADDRESS] [--null-cipher] [--trace FILE] [NAME...]
    scenario.py --selftest    check the cryptography and, against a stand-in core, the judge itself
    scenario.py --serve       be that stand-in core behind the kernel's SCTP on loopback

Prints `ok - NAME: STEP` or `not ok - NAME: STEP: WHY` for each step; exit status 0 if all went well. Each scenario has an
association of its own, so that one failure does not spoil the next. Needs a kernel with SCTP.
"""
import argparse
import os
import sys
import time

import crypto
import gtpu
import handover
import ngap
import sctp
from gnb import Gnb
from ue import CIPHERED, Ue, Wrong, demand, element

SCENARIOS = {}
SESSION = 1


def scenario(name):
    def keep(function):
        SCENARIOS[name] = function
        return function
    return keep


class Run:
    """One scenario's gNB, UE and steps."""

    def __init__(self, name, options, connect):
        self.name, self.options, self.connect = name, options, connect
        self.gnbs = []

    def step(self, text):
        """What comes next; the step before it went well."""
        self.passed()
        self.current = text

    current = None

    def passed(self):
        if self.current:
            print(f"ok - {self.name}: {self.current}", flush=True)
        self.current = None

    def gnb(self, **changes):
        o = self.options
        ue = self.ue()
        values = {"plmn": ue.ngap_plmn(), "tac": o.tac, "sst": 1, "n3_address": o.n3, "trace": o.trace_line, **changes}
        gnb = Gnb(self.connect(), **values)
        self.gnbs.append(gnb)
        return gnb

    def ue(self, **changes):
        o = self.options
        values = {"imsi": o.imsi, "k": o.k, "opc": o.opc, "mcc": o.mcc, "mnc": o.mnc, "null_cipher": o.null_cipher, **changes}
        return Ue(**values)

    def ready(self, **changes):
        """A gNB that is set up."""
        gnb = self.gnb(**changes)
        gnb.setup()
        return gnb

    def neighbour(self, gnb):
        """Another gNB, at the same address."""
        other = self.ready(gnb_id=gnb.gnb_id + 1)
        other.n3 = gnb.n3_socket()
        return other

    def close(self):
        for gnb in self.gnbs:
            gnb.close()


# ---- what several scenarios need ----------------------------------------------------------------------------------


def registered(run, gnb, ue, kind=1, quiet=False):
    """Registration (TS 23.502 §4.2.2.2.2) from idle; the link, connected. Each of the core's choices is allowed: whether
    to ask for the identity, to authenticate again, to change the security context."""
    say = (lambda text: None) if quiet else run.step
    link = gnb.link(ue)
    say("REGISTRATION REQUEST is answered")
    link.initial(ue.registration_request(kind), s_tmsi=ue.s_tmsi() if ue.guti else None)
    while True:
        name, ies = link.expect("DownlinkNASTransport", "InitialContextSetupRequest")
        if name == "InitialContextSetupRequest":
            say("INITIAL CONTEXT SETUP REQUEST: mandatory elements, K_gNB, UE security capabilities")
            nas = link.context_set_up(ies)
            if nas is None:
                continue
        else:
            nas = ies["NAS-PDU"]
        header, kind_of = nas[1] & 15, nas[2]
        if header == 0 and kind_of == 0x5B:
            say("IDENTITY REQUEST asks for the SUCI")
            link.up(ue.identity_response())
        elif header == 0 and kind_of == 0x56:
            say("AUTHENTICATION REQUEST: AUTN is genuine and fresh, ABBA and ngKSI are right")
            link.up(ue.authenticate(nas))
        elif header == 3:
            say("SECURITY MODE COMMAND: integrity, replayed capabilities, algorithms, ngKSI")
            link.up(ue.secure(nas))
        else:
            say("REGISTRATION ACCEPT: integrity, a new 5G-GUTI, TAI list, allowed NSSAI")
            answer = ue.accepted(nas)
            if answer:
                link.up(answer)
            return link


def session_opened(run, link, quiet=False):
    """PDU session establishment (TS 23.502 §4.3.2.2.1); the UE's address."""
    say = (lambda text: None) if quiet else run.step
    ue = link.ue
    say("PDU SESSION RESOURCE SETUP REQUEST: tunnel, QoS flow, session type")
    link.up(ue.session_request(SESSION, run.options.dnn))
    session, nas = link.session_set_up()
    demand(session == SESSION, f"PDU session {session}, asked for {SESSION}")
    say("PDU SESSION ESTABLISHMENT ACCEPT: address, QoS rules, DNS server")
    address, options = ue.session_accepted(nas, SESSION)
    demand(b"\x00\x0d\x04" in options, f"no IPv4 DNS server in the options {options.hex()}")
    return address


def idle(run, link, quiet=False):
    if not quiet:
        run.step("AN release: UE CONTEXT RELEASE COMMAND on the gNB's request")
    sessions = list(link.tunnels)
    link.ask_release(sessions)
    link.released(sessions)


def returned(run, gnb, ue, sessions=(SESSION,), quiet=False):
    """Service request (TS 23.502 §4.2.3.2); the new link with its tunnels."""
    if not quiet:
        run.step("SERVICE REQUEST: context set-up with the session's tunnel, SERVICE ACCEPT")
    link = gnb.link(ue)
    link.initial(ue.service_request(sessions), s_tmsi=ue.s_tmsi(), cause="mo-Data")
    _, ies = link.expect("InitialContextSetupRequest")
    nas = link.context_set_up(ies)
    ue.service_accepted(nas if nas is not None else link.nas())
    for session in sessions:
        if session not in link.tunnels:  # the core may send the sessions in a message of their own
            link.session_set_up()
    return link


def gone(run, link, quiet=False):
    """Deregistration by the UE (TS 23.502 §4.2.2.3.2)."""
    if not quiet:
        run.step("DEREGISTRATION ACCEPT, then release")
    ue = link.ue
    link.up(ue.deregistration_request())
    ue.read(link.nas(), "5GMMMODeregistrationAccept")
    link.released()
    ue.guti = None
    ue.forget_keys()


def error_indication(gnb, link=None):
    """ERROR INDICATION with a protocol error or an unknown identifier as its cause."""
    _, name, ies = gnb.next_message(lambda name, _: name == "ErrorIndication")
    demand("Cause" in ies or "CriticalityDiagnostics" in ies, "ERROR INDICATION says nothing (TS 38.413 §8.7.5.2)")
    return ies


# ---- scenarios --------------------------------------------------------------------------------------------------------


@scenario("NG setup")
def ng_setup(run):
    run.step("NG SETUP RESPONSE: name, GUAMI, capacity, PLMN and slice")
    gnb = run.gnb()
    ies = gnb.setup()
    for needed in ("AMFName", "ServedGUAMIList", "RelativeAMFCapacity", "PLMNSupportList"):
        demand(needed in ies, f"no {needed} (TS 38.413 §9.2.6.2)")
    supported = [item for item in ies["PLMNSupportList"] if item["pLMNIdentity"] == gnb.plmn]
    demand(supported, "the gNB's PLMN is not in the PLMN support list")
    slices = [item["s-NSSAI"]["sST"] for item in supported[0]["sliceSupportList"]]
    demand(bytes([gnb.sst]) in slices, f"the gNB's slice is not among {slices}")
    run.step("a second NG SETUP REQUEST on the same association is answered")
    gnb.setup()


@scenario("NG setup refused")
def ng_setup_refused(run):
    for text, change in (
        ("another PLMN", {"plmn": b"\x00\xf1\x10"}),
        ("another TAC", {"tac": 0xABCDEF}),
    ):
        run.step(f"NG SETUP FAILURE for {text}")
        gnb = run.gnb(**change)
        gnb.send("NGSetupRequest", gnb.setup_request())
        _, ies = gnb.expect("NGSetupFailure")
        demand("Cause" in ies, "no cause")


@scenario("one UE's day")
def one_ues_day(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue)
    run.step("UE radio capability is taken")
    gnb.send("UERadioCapabilityInfoIndication", {**link.ids(), "UERadioCapability": bytes(range(64))}, link.stream)
    address = session_opened(run, link)
    run.step(f"ping {run.options.ping} through the tunnel")
    link.ping(SESSION, address, run.options.ping)
    idle(run, link)
    link = returned(run, gnb, ue)
    run.step("ping again, through the new tunnel")
    link.ping(SESSION, address, run.options.ping, 2)
    run.step("PDU SESSION RELEASE COMMAND on the UE's request")
    link.up(ue.session_release_request(SESSION))
    link.up(ue.session_released(link.session_torn_down(), SESSION))
    gone(run, link)
    run.step("silence after the release")
    gnb.silence()


@scenario("return with a 5G-GUTI")
def return_with_guti(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    idle(run, link, quiet=True)
    first = ue.guti
    link = registered(run, gnb, ue, kind=3)  # periodic registration updating
    run.step("the 5G-GUTI is a new one")
    demand(ue.guti != first, "the same 5G-GUTI")
    gone(run, link, quiet=True)


@scenario("service request for signalling")
def signalling(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    idle(run, link, quiet=True)
    run.step("SERVICE ACCEPT without a session")
    link = returned(run, gnb, ue, sessions=(), quiet=True)
    gone(run, link, quiet=True)


# test: TS 23.502 §4.2.3.3: paging
@scenario("paging")
def paging(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    address = session_opened(run, link, quiet=True)
    peer, teid, qfi, _ = link.tunnels[SESSION]
    idle(run, link, quiet=True)
    # A straggler: its answer comes when the UE is idle.
    packet = gtpu.ping(address, run.options.ping, 7, 7)
    gnb.n3_socket().sendto(gtpu.g_pdu(teid, qfi, packet), (peer, gtpu.PORT))
    run.step("PAGING: the UE's 5G-S-TMSI, the gNB's tracking area")
    _, ies = gnb.expect("Paging")
    kind, named = ies["UEPagingIdentity"]
    (amf_set, _), (pointer, _) = named["aMFSetID"], named["aMFPointer"]
    octets = (amf_set << 6 | pointer).to_bytes(2, "big") + named["fiveG-TMSI"]
    demand(octets == ue.s_tmsi(), f"{kind} {octets.hex()}, the UE is {ue.s_tmsi().hex()}")
    areas = [item["tAI"]["tAC"] for item in ies["TAIListForPaging"]]
    demand(gnb.tac.to_bytes(3, "big") in areas, f"tracking areas {areas}")
    link = returned(run, gnb, ue)
    run.step("what waited for the UE arrives")
    _, _, _, downlink = link.tunnels[SESSION]
    kind, teid, _, _, inner = gnb.n3_next()
    demand(kind == gtpu.G_PDU and teid == downlink and gtpu.is_pong(inner, packet), f"came message {kind} for TEID {teid:#x}")
    gone(run, link, quiet=True)


def at_a_gnb_with_a_neighbour(run):
    """A UE with a session, its link, its address, and another gNB."""
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    address = session_opened(run, link, quiet=True)
    other = run.neighbour(gnb)
    return link, address, other


# test: TS 23.502 §4.9.1.2.2: Xn handover
@scenario("Xn handover")
def xn_handover(run):
    source, address, other = at_a_gnb_with_a_neighbour(run)
    run.step("PATH SWITCH REQUEST ACKNOWLEDGE: NH as the UE derives it, the session switched")
    link = handover.path_switch(source, other)
    run.step("END MARKER on the former tunnel")
    handover.end_marker(source, SESSION)
    run.step("ping through the new gNB")
    link.ping(SESSION, address, run.options.ping, 2)
    run.step("and back again, with the next NH")
    back = handover.path_switch(link, source.gnb)
    handover.end_marker(link, SESSION)
    back.ping(SESSION, address, run.options.ping, 3)
    run.step("the source gNB gets no message")
    other.silence()
    gone(run, back, quiet=True)


# test: TS 23.502 §4.9.1.3.2; §4.9.1.3.3: N2 handover
@scenario("N2 handover")
def n2_handover(run):
    source, address, other = at_a_gnb_with_a_neighbour(run)
    run.step("HANDOVER REQUEST: mandatory elements, the source's container, NH, the session's tunnel")
    handover.require(source, other)
    link = handover.request(source, other)
    run.step("HANDOVER COMMAND: the target's container, a tunnel to forward to")
    handover.acknowledge(link)
    tunnels = handover.commanded(source)
    demand(SESSION in tunnels, "no tunnel to forward to, though the target takes what is forwarded")
    run.step("DOWNLINK RAN STATUS TRANSFER carries the source's container")
    handover.pass_status(source, link)
    run.step("what the source forwards reaches the target")
    handover.forwarded(link, tunnels[SESSION], SESSION, gtpu.ping(run.options.ping, address, 5, 5))
    run.step("HANDOVER NOTIFY: END MARKER at the source, then its context is released")
    handover.arrived(link)
    handover.end_marker(source, SESSION)
    cause = source.released([SESSION])
    demand(cause == ("radioNetwork", "successful-handover"), f"cause {cause}")
    run.step("ping through the target")
    link.ping(SESSION, address, run.options.ping, 2)
    run.step("the UE goes idle there and returns")
    idle(run, link, quiet=True)
    link = returned(run, other, source.ue, quiet=True)
    link.ping(SESSION, address, run.options.ping, 3)
    gone(run, link, quiet=True)


# test: TS 38.413 §8.4.1.3; §8.4.2.3; §8.4.5.2: N2 handover that comes to nothing
@scenario("N2 handover that comes to nothing")
def n2_handover_refused(run):
    source, address, other = at_a_gnb_with_a_neighbour(run)
    run.step("HANDOVER PREPARATION FAILURE for an unknown gNB")
    handover.require(source, other, gnb_id=4711)
    _, ies = source.expect("HandoverPreparationFailure")
    demand(ies["Cause"][0] == "radioNetwork", f"cause {ies['Cause']}")
    run.step("HANDOVER PREPARATION FAILURE when the target refuses")
    handover.require(source, other)
    handover.refuse(handover.request(source, other))
    source.expect("HandoverPreparationFailure")
    run.step("HANDOVER CANCEL is acknowledged, and the target lets the UE go")
    handover.require(source, other)
    link = handover.request(source, other)
    handover.acknowledge(link)
    handover.commanded(source)
    source.gnb.send("HandoverCancel", {**source.ids(), "Cause": ("radioNetwork", "handover-cancelled")}, source.stream)
    source.expect("HandoverCancelAcknowledge")
    link.released()
    run.step("ping where the UE has been all along")
    source.ping(SESSION, address, run.options.ping, 2)
    gone(run, source, quiet=True)


@scenario("an unknown 5G-GUTI")
def unknown_guti(run):
    gnb, ue = run.ready(), run.ue()
    ue.guti = b"\xf2" + ue.plmn() + b"\x01\x00\x41\xde\xad\xbe\xef"
    gone(run, registered(run, gnb, ue), quiet=True)


@scenario("a UE that restarts")
def restart(run):
    gnb, ue = run.ready(), run.ue()
    old = registered(run, gnb, ue, quiet=True)
    session_opened(run, old, quiet=True)
    run.step("it registers again while its old context exists")
    again = run.ue()
    again.sqn = ue.sqn
    link = registered(run, gnb, again, quiet=True)
    run.step("the old logical connection is released")
    old.released()
    address = session_opened(run, link)
    run.step("ping from the new session")
    link.ping(SESSION, address, run.options.ping)
    run.step("switched off: released without DEREGISTRATION ACCEPT")
    link.up(again.deregistration_request(switch_off=True))
    link.released()
    run.step("silence after the release")
    gnb.silence()


@scenario("SQN out of step")
def out_of_step(run):
    gnb, ue = run.ready(), run.ue()
    link = gnb.link(ue)
    run.step("AUTHENTICATION REQUEST")
    link.initial(ue.registration_request())
    request = link.nas()
    run.step("after AUTHENTICATION FAILURE (synch failure) a new one, with an SQN above the UE's")
    link.up(ue.claim_stale(request, ahead=1 << 24))
    link.up(ue.authenticate(link.nas()))
    run.step("SECURITY MODE COMMAND")
    link.up(ue.secure(link.nas()))
    _, ies = link.expect("InitialContextSetupRequest")
    nas = link.context_set_up(ies)
    answer = ue.accepted(nas if nas is not None else link.nas())
    if answer:
        link.up(answer)
    gone(run, link, quiet=True)


@scenario("wrong RES*")
def wrong_res_star(run):
    gnb, ue = run.ready(), run.ue()
    link = gnb.link(ue)
    link.initial(ue.registration_request())
    run.step("AUTHENTICATION REJECT, then release")
    good = ue.authenticate(link.nas())
    link.up(good[:-1] + bytes([good[-1] ^ 1]))
    nas = link.nas()
    if nas[2] == 0x5B:  # TS 24.501 §5.4.1.3.5: with a 5G-GUTI the network may identify the UE first
        link.up(ue.identity_response())
        nas = link.nas()
    ue.read(nas, "5GMMAuthenticationReject", protected=False)
    link.released()


@scenario("unknown subscriber")
def unknown_subscriber(run):
    gnb, ue = run.ready(), run.ue(imsi=run.options.imsi[:5] + "9" * (len(run.options.imsi) - 5))
    link = gnb.link(ue)
    run.step("REGISTRATION REJECT, then release")
    link.initial(ue.registration_request())
    ue.read(link.nas(), "5GMMRegistrationReject", "5GMMAuthenticationReject", protected=False)
    link.released()


@scenario("unknown DNN")
def unknown_dnn(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    run.step("refused with a cause, and the UE stays registered")
    link.up(ue.session_request(SESSION, dnn="nowhere"))
    outer = ue.read(link.nas(), "5GMMDLNASTransport")
    payload = element(outer, "PayloadContainer")
    rejected = payload[3] == 0xC3  # PDU SESSION ESTABLISHMENT REJECT
    demand(rejected or element(outer, "5GMMCause"), f"neither a 5GSM reject nor a 5GMM cause: {payload.hex()}")
    run.step("a session with the right DNN still opens")
    session_opened(run, link, quiet=True)
    gone(run, link, quiet=True)


@scenario("GTP-U")
def gtp_u(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    address = session_opened(run, link, quiet=True)
    peer, teid, qfi, _ = link.tunnels[SESSION]
    run.step("ECHO RESPONSE with the sequence number and Recovery")
    kind, _, sequence, _, rest = gnb.n3_exchange(gtpu.echo_request(0x1234), peer)
    demand(kind == gtpu.ECHO_RESPONSE, f"message {kind}")
    demand(sequence == 0x1234, f"sequence number {sequence}")
    demand(gtpu.elements(rest).get(14) is not None, "no Recovery (TS 29.281 §7.2.2)")
    run.step("ERROR INDICATION for an unknown TEID")
    stray = (teid ^ 0x5A5A5A5A) or 1
    kind, _, _, _, rest = gnb.n3_exchange(gtpu.g_pdu(stray, qfi, gtpu.ping(address, run.options.ping, 1, 1)), peer)
    demand(kind == gtpu.ERROR_INDICATION, f"message {kind}")
    named = gtpu.elements(rest).get(16)
    demand(named == stray.to_bytes(4, "big"), f"it names TEID {named}")
    run.step("a packet with another source address than the UE's is dropped")
    forged = gtpu.g_pdu(teid, qfi, gtpu.ping("10.99.99.99", run.options.ping, 1, 1))
    try:
        kind = gnb.n3_exchange(forged, peer, timeout=0.5)[0]
        raise Wrong(f"answered with message {kind}")
    except Wrong as silence:
        demand("no answer" in str(silence), str(silence))
    run.step("and the UE's own packets still pass")
    link.ping(SESSION, address, run.options.ping, 3)
    gone(run, link, quiet=True)


@scenario("NG reset")
def ng_reset(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    session_opened(run, link, quiet=True)
    run.step("NG RESET ACKNOWLEDGE")
    gnb.send("NGReset", {"Cause": ("misc", "om-intervention"), "ResetType": ("nG-Interface", "reset-all")})
    gnb.expect("NGResetAcknowledge")
    link = returned(run, gnb, ue)
    gone(run, link, quiet=True)


@scenario("a gNB loses its power")
def power_loss(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    address = session_opened(run, link, quiet=True)
    run.step("a new association of the same gNB is set up")
    gnb.n3_socket().close()
    gnb.n3 = None
    gnb.association.abort()
    gnb = run.ready()
    link = returned(run, gnb, ue)
    run.step("ping from the UE that came back")
    link.ping(SESSION, address, run.options.ping)
    gone(run, link, quiet=True)


@scenario("bad NGAP")
def bad_ngap(run):
    gnb = run.ready()
    good = ngap.encode("NGSetupRequest", gnb.setup_request())
    for text, octets in (
        ("octets that are no NGAP", b"\xff" * 40),
        ("a message cut short", good[:20]),
        ("an unknown procedure of criticality reject", bytes([0, 238]) + good[2:]),
        ("an NG SETUP REQUEST without its mandatory elements", ngap.encode("NGSetupRequest", {"DefaultPagingDRX": "v32"})),
    ):
        run.step(f"{text}: answered, and nothing else breaks")
        gnb.send_octets(octets)
        _, name, _ = gnb.next_message(lambda *_: True)
        demand(name in ("ErrorIndication", "NGSetupFailure"), f"came {name}")
    run.step("ERROR INDICATION for an unknown AMF-UE-NGAP-ID")
    stray = gnb.link(run.ue())
    stray.amf_id = 0x123456789
    stray.up(b"\x7e\x00\x67\x01\x00\x04\x2e\x01\x01\xc1\xff\xff\x91")
    ies = error_indication(gnb)
    demand(ies.get("Cause", (None, None))[0] == "radioNetwork", f"cause {ies.get('Cause')}")
    run.step("the same association still serves a UE")
    gone(run, registered(run, gnb, run.ue(), quiet=True), quiet=True)


@scenario("bad NAS")
def bad_nas(run):
    gnb, ue = run.ready(), run.ue()
    link = registered(run, gnb, ue, quiet=True)
    run.step("garbage as first messages of other UEs does not affect this UE")
    for size in (1, 2, 3, 7, 40, 2000):
        other = gnb.link(ue)
        other.initial(os.urandom(size))
    run.step("a forged message in the UE's name is not heard")
    count = ue.uplink_count
    forged = bytearray(ue.deregistration_request())
    ue.uplink_count = count
    forged[2] ^= 0xFF
    link.up(bytes(forged))
    run.step("a replayed message is not heard")
    ue.uplink_count = 0
    replayed = ue.deregistration_request()
    ue.uplink_count = count
    link.up(replayed)
    run.step("an unknown message type within good protection gets 5GMM STATUS #97 (TS 24.501 §7.4)")
    link.up(ue.protect(b"\x7e\x00\xee", CIPHERED))
    cause = element(ue.read(link.nas(), "5GMMStatus"), "5GMMCause")
    demand(cause == bytes([97]), f"cause {cause}")
    run.step("the UE is still served")
    time.sleep(0.2)
    gnb.waiting.clear()
    session_opened(run, link, quiet=True)
    gone(run, link, quiet=True)


# ---- main -------------------------------------------------------------------------------------------------------------


def run_all(options, connect, names=()):
    """Run the scenarios; how many failed."""
    failed = 0
    for name, function in SCENARIOS.items():
        if names and name not in names:
            continue
        run = Run(name, options, connect)
        try:
            function(run)
            run.passed()
        except (Wrong, sctp.Closed, OSError) as why:
            failed += 1
            print(f"not ok - {name}: {run.current}: {why}", flush=True)
        finally:
            run.close()
    return failed


def options_of(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--amf", default="127.0.0.1")
    parser.add_argument("--n3", default="127.0.0.1")
    parser.add_argument("--mcc", default="999")
    parser.add_argument("--mnc", default="70")
    parser.add_argument("--tac", type=int, default=1)
    parser.add_argument("--dnn", default="internet")
    parser.add_argument("--imsi", default="999700000000001")
    parser.add_argument("--k", type=bytes.fromhex, default=bytes.fromhex("465b5ce8b199b49faa5f0a2ee238a6bc"))
    parser.add_argument("--opc", type=bytes.fromhex, default=bytes.fromhex("cd63cb71954a9f4e48a5994e37a02baf"))
    parser.add_argument("--ping", default="10.45.0.1")
    parser.add_argument("--null-cipher", action="store_true", help="the UE offers 5G-EA0 alone, so that captures can be read")
    parser.add_argument("--trace", help="a file for each message sent and received, in hexadecimal")
    parser.add_argument("--selftest", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios to run: " + ", ".join(SCENARIOS))
    options = parser.parse_args(arguments)
    options.trace_line = None
    if options.trace:
        trace = open(options.trace, "w", buffering=1)
        options.trace_line = lambda line: print(f"{time.monotonic():.3f} {line}", file=trace)
    return options


def main():
    options = options_of(sys.argv[1:])
    crypto.selftest()
    if options.selftest or options.serve:
        import standin
        return standin.serve(options) if options.serve else standin.selftest(options, run_all)
    failed = run_all(options, lambda: sctp.Association(options.amf), options.names)
    print(f"# {failed} scenarios failed" if failed else "# all scenarios passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
