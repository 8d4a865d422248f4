//! Setting associations up: INIT, INIT ACK, COOKIE ECHO, in and out of order (RFC 9260 §5.1, §5.2).

use std::net::IpAddr;

use crate::association::{Association, AssociationContext, AssociationIdentity, State};
use crate::config::Config;
use crate::cookie::{Cookie, PEER_ADDRESSES_MAX};
use crate::endpoint::{Endpoint, UserNotes};
use crate::outbox::{DownReason, Event, Outbox, Path};
use crate::packet::{
    Chunk, Init, Packet, Parameters, UnknownTypeAction, be32, cause, kind, parameter, read_address,
    write_address, write_chunk, write_parameter,
};
use crate::path::{PathState, suitable_local};
use whimbrel_ids::Instant;

/// Most octets of unrecognized parameters returned in one INIT ACK: what is left of a small packet beside a cookie.
const UNRECOGNIZED_OCTETS_MAX: usize = 256;

/// The parameters of an INIT or INIT ACK.
#[derive(Default)]
struct Offer<'a> {
    addresses: Vec<IpAddr>,
    cookie: Option<&'a [u8]>,
    adaptation: Option<u32>,
    /// Parameters to report, each whole and padded.
    unrecognized: Vec<u8>,
    host_name: Option<&'a [u8]>,
}

impl<'a> Offer<'a> {
    fn read(parameters: Parameters<'a>, from: IpAddr) -> Self {
        let mut offer = Self::default();
        for p in parameters {
            match p.kind {
                parameter::IPV4_ADDRESS | parameter::IPV6_ADDRESS => {
                    if let Some(a) = read_address(&p).filter(|a| is_usable(*a, from))
                        && offer.addresses.len() < PEER_ADDRESSES_MAX
                        && !offer.addresses.contains(&a)
                    {
                        offer.addresses.push(a);
                    }
                }
                parameter::STATE_COOKIE => offer.cookie = Some(p.value),
                parameter::ADAPTATION_LAYER_INDICATION => offer.adaptation = be32(p.value, 0),
                parameter::HOST_NAME_ADDRESS => offer.host_name = Some(p.whole),
                parameter::UNRECOGNIZED
                | parameter::COOKIE_PRESERVATIVE
                | parameter::SUPPORTED_ADDRESS_TYPES => {}
                unknown => {
                    let rule = UnknownTypeAction::of_parameter(unknown);
                    if rule.report && offer.unrecognized.len() + p.whole.len() <= UNRECOGNIZED_OCTETS_MAX {
                        let start = offer.unrecognized.len();
                        offer.unrecognized.extend_from_slice(p.whole);
                        crate::packet::pad(&mut offer.unrecognized, start);
                    }
                    if rule.stop {
                        break;
                    }
                }
            }
        }
        offer
    }
}

/// Whether an address that a peer at `from` lists can be one of its own.
fn is_usable(address: IpAddr, from: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(a) if a.is_broadcast());
    !address.is_unspecified()
        && !address.is_multicast()
        && !broadcast
        && (!address.is_loopback() || from.is_loopback())
}

/// Writes our INIT into the association's handshake buffer (RFC 9260 §3.3.2).
pub(crate) fn write_init(a: &mut Association, config: &Config) {
    let init = Init {
        tag: a.local_tag,
        a_rwnd: config.receive_window_octets,
        outbound_streams: config.outbound_streams,
        inbound_streams: config.inbound_streams_max,
        tsn: a.local_initial_tsn,
    };
    let remote = a.paths.get(a.primary).map(|p| p.path.remote);
    a.handshake.clear();
    write_chunk(&mut a.handshake, kind::INIT, 0, |o| {
        init.write(o);
        write_local_addresses(o, remote, config);
        write_adaptation(o, config.adaptation);
    });
}

/// Writes our adaptation code point (RFC 5061 §4.2.6).
fn write_adaptation(o: &mut Vec<u8>, adaptation: Option<u32>) {
    if let Some(code_point) = adaptation {
        write_parameter(o, parameter::ADAPTATION_LAYER_INDICATION, |o| {
            o.extend_from_slice(&code_point.to_be_bytes());
        });
    }
}

/// Lists our addresses if there are several that suit the peer (RFC 9260 §3.3.2.1).
fn write_local_addresses(o: &mut Vec<u8>, remote: Option<IpAddr>, config: &Config) {
    let near = remote.is_some_and(|r| r.is_loopback());
    let suits = |a: &IpAddr| !a.is_unspecified() && (near || !a.is_loopback());
    if config.local_addresses.iter().filter(|a| suits(a)).count() > 1 {
        for a in config.local_addresses.iter().filter(|a| suits(a)).take(PEER_ADDRESSES_MAX) {
            write_address(o, *a);
        }
    }
}

/// A packet of one chunk outside any association.
pub(crate) fn reply(
    out: &mut Outbox,
    path: Path,
    to: &Packet<'_>,
    tag: u32,
    chunk: (u8, u8),
    body: impl FnOnce(&mut Vec<u8>),
) {
    out.packets.open(to.destination, to.source, tag);
    write_chunk(out.packets.buffer(), chunk.0, chunk.1, body);
    out.packets.close(path);
}

/// ABORT with one error cause outside any association.
fn refuse(out: &mut Outbox, path: Path, to: &Packet<'_>, tag: u32, code: u16, info: &[u8]) {
    reply(out, path, to, tag, (kind::ABORT, 0), |o| {
        write_parameter(o, code, |o| o.extend_from_slice(info));
    });
}

impl Endpoint {
    /// INIT, with or without an association (RFC 9260 §5.1, §5.2.1, §5.2.2).
    pub(crate) fn on_init(
        &mut self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
        chunk: Chunk<'_>,
        out: &mut Outbox,
    ) {
        let mut chunks = packet.chunks;
        let alone = chunks.nth(1).is_none();
        let Some((init, parameters)) = Init::parse(chunk.value) else { return self.count_malformed() };
        if packet.tag != 0 || !alone || init.tag == 0 {
            return self.count_malformed();
        }
        if !init.is_valid() {
            return refuse(out, path, packet, init.tag, cause::INVALID_MANDATORY_PARAMETER, &[]);
        }
        let offer = Offer::read(parameters, path.remote);
        if let Some(name) = offer.host_name {
            return refuse(out, path, packet, init.tag, cause::UNRESOLVABLE_ADDRESS, name);
        }
        // An address that a peer has merely listed may be the sender's: it gets an association of its own (RFC 5062 §2).
        let of = |a: &IpAddr| self.holder_of(packet.destination, packet.source, *a);
        let slot = of(&path.remote).or_else(|| offer.addresses.iter().find_map(of));
        let mut tie_tags = (0, 0);
        let mut local = None;
        if let Some(a) = slot.and_then(|s| self.association_at(s)) {
            if a.state == State::ShutdownAckSent {
                return self.with(slot, now, out, |a, cx| a.repeat_shutdown_ack(false, cx));
            }
            // Before the peer's INIT ACK we cannot know all its addresses (RFC 9260 §5.2.1).
            let known = |address: &IpAddr| a.state == State::CookieWait || a.path_to(*address).is_some();
            if !known(&path.remote) || !offer.addresses.iter().all(known) {
                // A sender that adds addresses could take an association over (RFC 9260 §5.2.2).
                let mut info = Vec::new();
                for address in offer.addresses.iter().filter(|x| !known(x)) {
                    write_address(&mut info, *address);
                }
                return refuse(out, path, packet, init.tag, cause::RESTART_WITH_NEW_ADDRESSES, &info);
            }
            match a.state {
                State::CookieWait => local = Some((a.local_tag, a.local_initial_tsn)),
                State::CookieEchoed => {
                    local = Some((a.local_tag, a.local_initial_tsn));
                    tie_tags = (a.local_tag, a.peer_tag);
                }
                _ => tie_tags = (a.local_tag, a.peer_tag),
            }
        } else if !self.config().accept_inbound {
            return reply(out, path, packet, init.tag, (kind::ABORT, 0), |_| {});
        }
        let local = local.unwrap_or_else(|| self.prf_mut().tag_and_tsn());
        self.send_init_ack(now, path, packet, (init, &offer), local, tie_tags, out);
    }

    #[allow(clippy::too_many_arguments)] // the parts of one message
    fn send_init_ack(
        &mut self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
        (init, offer): (Init, &Offer<'_>),
        (local_tag, local_tsn): (u32, u32),
        (local_tie_tag, peer_tie_tag): (u32, u32),
        out: &mut Outbox,
    ) {
        let config = self.config();
        let cookie = Cookie {
            created: now,
            local_port: packet.destination,
            peer_port: packet.source,
            local_tag,
            peer_tag: init.tag,
            local_tsn,
            peer_tsn: init.tsn,
            peer_rwnd: init.a_rwnd,
            inbound_streams: init.outbound_streams.min(config.inbound_streams_max),
            outbound_streams: init.inbound_streams.min(config.outbound_streams),
            local_tie_tag,
            peer_tie_tag,
            adaptation: offer.adaptation,
            path,
            addresses: offer.addresses.iter().copied().filter(|a| *a != path.remote).collect(),
        };
        let ours = Init {
            tag: local_tag,
            a_rwnd: config.receive_window_octets,
            outbound_streams: cookie.outbound_streams,
            inbound_streams: config.inbound_streams_max,
            tsn: local_tsn,
        };
        reply(out, path, packet, init.tag, (kind::INIT_ACK, 0), |o| {
            ours.write(o);
            write_parameter(o, parameter::STATE_COOKIE, |o| self.prf().seal(&cookie, o));
            write_local_addresses(o, Some(path.remote), config);
            write_adaptation(o, config.adaptation.filter(|_| config.adaptation == offer.adaptation));
            for p in Parameters(&offer.unrecognized) {
                write_parameter(o, parameter::UNRECOGNIZED, |o| o.extend_from_slice(p.whole));
            }
        });
    }

    /// INIT ACK (RFC 9260 §5.1 C, §5.2.3).
    pub(crate) fn on_init_ack(
        &mut self,
        now: Instant,
        slot: u32,
        path: Path,
        packet: &Packet<'_>,
        chunk: Chunk<'_>,
        out: &mut Outbox,
    ) {
        let Some(a) = self.association_at(slot) else { return };
        if a.state != State::CookieWait || packet.tag != a.local_tag {
            return;
        }
        let Some((init, parameters)) = Init::parse(chunk.value) else { return self.count_malformed() };
        let offer = Offer::read(parameters, path.remote);
        let (local_port, peer_port) = (a.local_port, a.peer_port);
        let free = |address: &IpAddr| self.holder_of(local_port, peer_port, *address).is_none();
        let new: Vec<IpAddr> = offer.addresses.iter().copied().filter(free).collect();
        self.with(Some(slot), now, out, |a, cx| {
            a.peer_tag = init.tag;
            let Some(cookie) = offer.cookie.filter(|_| init.is_valid()) else {
                let violation = DownReason::ProtocolViolation;
                return a.abort(cause::INVALID_MANDATORY_PARAMETER, &[], violation, cx);
            };
            a.inbound_streams = init.outbound_streams.min(cx.config.inbound_streams_max);
            a.outbound_streams = init.inbound_streams.min(cx.config.outbound_streams);
            a.adaptation = offer.adaptation;
            let local = (a.local_tag, a.local_initial_tsn);
            add_paths(a, &new, path.udp_port, cx);
            a.reset(local, (init.tag, init.tsn), init.a_rwnd, cx);
            a.primary = a.heard_on(path);
            a.handshake.clear();
            write_chunk(&mut a.handshake, kind::COOKIE_ECHO, 0, |o| o.extend_from_slice(cookie));
            if !offer.unrecognized.is_empty() {
                write_chunk(&mut a.handshake, kind::ERROR, 0, |o| {
                    write_parameter(o, cause::UNRECOGNIZED_PARAMETERS, |o| {
                        o.extend_from_slice(&offer.unrecognized);
                    });
                });
            }
            a.state = State::CookieEchoed;
            a.start_handshake(cx);
        });
        self.register(slot);
    }

    /// COOKIE ECHO, with or without an association (RFC 9260 §5.1 D, §5.2.4). The slot of its association, if it is
    /// good, so that the chunks behind it can be taken.
    pub(crate) fn on_cookie_echo(
        &mut self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
        chunk: Chunk<'_>,
        out: &mut Outbox,
    ) -> Option<u32> {
        let Some(cookie) = self.prf().open(chunk.value) else {
            self.count_bad_cookie();
            return None;
        };
        if packet.tag != cookie.local_tag
            || packet.destination != cookie.local_port
            || packet.source != cookie.peer_port
        {
            self.count_bad_cookie();
            return None;
        }
        // As for INIT, but that a peer may repeat its own COOKIE ECHO from an address that it has only listed.
        let of = |remote: &IpAddr| {
            let slot = self.slot_of(packet.destination, packet.source, *remote)?;
            let a = self.association_at(slot)?;
            (a.owns(*remote) || a.local_tag == cookie.local_tag).then_some(slot)
        };
        let restarts = cookie.local_tie_tag != 0;
        let slot = of(&path.remote)
            .or_else(|| of(&cookie.path.remote))
            .or_else(|| cookie.addresses.iter().filter(|_| restarts).find_map(of));
        let tags = slot.and_then(|s| self.association_at(s)).map(|a| (a.local_tag, a.peer_tag));
        let age = now.since(cookie.created);
        if age > self.config().cookie_life && tags != Some((cookie.local_tag, cookie.peer_tag)) {
            // Measure of staleness in microseconds (RFC 9260 §3.3.10.3).
            let late = u32::try_from((age - self.config().cookie_life).as_micros()).unwrap_or(u32::MAX);
            reply(out, path, packet, cookie.peer_tag, (kind::ERROR, 0), |o| {
                write_parameter(o, cause::STALE_COOKIE, |o| o.extend_from_slice(&late.to_be_bytes()));
            });
            return None;
        }
        let Some((slot, (local_tag, peer_tag))) = slot.zip(tags) else {
            return self.open_from_cookie(now, path, packet, &cookie, out);
        };
        let local_matches = local_tag == cookie.local_tag;
        let peer_matches = peer_tag == cookie.peer_tag;
        let ties_match = (cookie.local_tie_tag, cookie.peer_tie_tag) == (local_tag, peer_tag);
        match (local_matches, peer_matches) {
            (false, false) if ties_match && cookie.local_tie_tag != 0 => {
                self.restart(now, slot, path, &cookie, out)
            }
            (true, false) => self.collide(now, slot, path, &cookie, out),
            (true, true) => self.with(Some(slot), now, out, |a, cx| {
                let from = a.heard_on(path);
                if matches!(a.state, State::CookieWait | State::CookieEchoed) {
                    a.established(cx);
                }
                a.send_cookie_ack(from, cx);
            }),
            // Action C, a cookie that came late, and what the table does not name: silence.
            _ => return None,
        }
        Some(slot)
    }

    /// No association yet: the cookie opens one (RFC 9260 §5.1 D).
    fn open_from_cookie(
        &mut self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
        cookie: &Cookie,
        out: &mut Outbox,
    ) -> Option<u32> {
        if !self.config().accept_inbound {
            // Stopped since the cookie was given: the peer learns it now (Input::Stop).
            refuse(out, path, packet, cookie.peer_tag, cause::USER_INITIATED_ABORT, &[]);
            return None;
        }
        let Some(id) = self.allocate() else {
            refuse(out, path, packet, cookie.peer_tag, cause::OUT_OF_RESOURCE, &[]);
            return None;
        };
        let identity = AssociationIdentity {
            id,
            local_port: cookie.local_port,
            peer_port: cookie.peer_port,
            local_tag: cookie.local_tag,
            local_tsn: cookie.local_tsn,
        };
        let new = self.unclaimed(cookie);
        let mut a = Association::new(identity, self.config());
        a.paths.push(PathState::new(cookie.path, true, now, self.config()));
        a.inbound_streams = cookie.inbound_streams;
        a.outbound_streams = cookie.outbound_streams;
        a.adaptation = cookie.adaptation;
        self.insert(a);
        self.with(Some(id.slot), now, out, |a, cx| {
            add_paths(a, &new, path.udp_port, cx);
            let local = (cookie.local_tag, cookie.local_tsn);
            a.reset(local, (cookie.peer_tag, cookie.peer_tsn), cookie.peer_rwnd, cx);
            let from = a.heard_on(path);
            a.send_cookie_ack(from, cx);
            a.established(cx);
        });
        self.register(id.slot);
        Some(id.slot)
    }

    /// Action A: the peer restarted (RFC 9260 §5.2.4.1).
    fn restart(&mut self, now: Instant, slot: u32, path: Path, cookie: &Cookie, out: &mut Outbox) {
        self.with(Some(slot), now, out, |a, cx| {
            if a.state == State::ShutdownAckSent {
                return a.repeat_shutdown_ack(true, cx);
            }
            a.inbound_streams = cookie.inbound_streams;
            a.outbound_streams = cookie.outbound_streams;
            a.adaptation = cookie.adaptation;
            let local = (cookie.local_tag, cookie.local_tsn);
            a.reset(local, (cookie.peer_tag, cookie.peer_tsn), cookie.peer_rwnd, cx);
            a.state = State::Established;
            a.notes = UserNotes::default(); // they were of the association before
            a.primary = a.heard_on(cookie.path);
            if let Some(p) = a.paths.get_mut(a.primary) {
                p.confirmed = true;
            }
            let from = a.heard_on(path);
            a.send_cookie_ack(from, cx);
            cx.out.events.push(Event::Restarted {
                association: a.id,
                inbound_streams: a.inbound_streams,
                outbound_streams: a.outbound_streams,
                adaptation: a.adaptation,
            });
        });
    }

    /// Action B: both sides opened at once (RFC 9260 §5.2.4 B).
    fn collide(&mut self, now: Instant, slot: u32, path: Path, cookie: &Cookie, out: &mut Outbox) {
        let new = self.unclaimed(cookie);
        self.with(Some(slot), now, out, |a, cx| {
            if !matches!(a.state, State::CookieWait | State::CookieEchoed) {
                return; // an off-path sender knows our tag only by chance
            }
            a.inbound_streams = cookie.inbound_streams;
            a.outbound_streams = cookie.outbound_streams;
            a.adaptation = cookie.adaptation;
            let local = (cookie.local_tag, cookie.local_tsn);
            add_paths(a, &new, path.udp_port, cx);
            a.reset(local, (cookie.peer_tag, cookie.peer_tsn), cookie.peer_rwnd, cx);
            a.primary = a.heard_on(path);
            a.send_cookie_ack(a.primary, cx);
            a.established(cx);
        });
        self.register(slot);
    }

    /// The addresses in a cookie at which no other peer is known to be.
    fn unclaimed(&self, cookie: &Cookie) -> Vec<IpAddr> {
        let free = |a: &IpAddr| self.holder_of(cookie.local_port, cookie.peer_port, *a).is_none();
        cookie.addresses.iter().copied().filter(free).collect()
    }
}

/// Adds paths to addresses that the peer listed; they are confirmed by heartbeats (RFC 9260 §5.4).
fn add_paths(a: &mut Association, addresses: &[IpAddr], udp_port: u16, cx: &AssociationContext<'_>) {
    for remote in addresses {
        if a.path_to(*remote).is_none() && a.paths.len() < PEER_ADDRESSES_MAX {
            let local = suitable_local(&cx.config.local_addresses, *remote);
            let path = Path { local, remote: *remote, udp_port };
            a.paths.push(PathState::new(path, false, cx.now, cx.config));
        }
    }
}
