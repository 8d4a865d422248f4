//! The messages of one UE as a capture: `GET /api/v1/ues/{supi}/capture`, a pcapng stream for Wireshark and tshark.
//!
//! It has the N2 and N4 messages that are kept of the UE, as the packets that would have carried them, and the NAS messages in them once more
//! in clear where they were ciphered. With `live=true` new messages follow, and the UE's packets on N3, until the client leaves. A client that
//! reads slowly slows down nothing but itself: what it misses is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Bytes, Frame};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;
use whimbrel_control::UeId;
use whimbrel_ids::Supi;
use whimbrel_node::observation::capture::{N2Packets, udp_packet};
use whimbrel_node::observation::{ConsoleCommand, Interface, Message, TunnelEnd};

use super::auth::Caller;
use super::input::{PathParts, Query, SupiPart};
use super::openapi::OperationDescription;
use super::problem::ProblemDetails;
use super::routes::{AnswerKind, HandlerResult, Reply, RoutedRequest};
use super::{HandlerContext, signalling};
use crate::pcapng;

/// Messages of one look; the rest follows at the next one.
const PER_LOOK_MAX: usize = 1000;
/// How often the console is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Looks between two checks that the caller's session goes on.
const LOOKS_PER_CHECK: u64 = 10;
/// Chunks that wait for the client.
const CHUNKS_MAX: usize = 4;
/// The port of PFCP (TS 29.244 §6.3.1).
const PFCP_PORT: u16 = 8805;

/// A word of a query that is true or false; true, too, where the name stands alone.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[schemars(inline)]
enum Flag {
    #[serde(rename = "false")]
    False,
    #[serde(rename = "true", alias = "")]
    True,
}

/// The kind of capture.
#[derive(Deserialize, JsonSchema)]
pub(super) struct CaptureQuery {
    /// If true, new messages and the UE's packets on N3 follow until the client leaves.
    live: Option<Flag>,
}

/// A capture in the form of pcapng.
pub(super) struct PcapNg;

impl AnswerKind for PcapNg {
    fn describe(operation: &mut OperationDescription<'_>) {
        let schema = serde_json::json!({ "type": "string", "format": "binary" });
        operation.add_answer("200", "Done", &[(CONTENT_TYPE, schema)]);
    }
}

pub(super) async fn of_ue(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    path: PathParts<SupiPart>,
    Query(query): Query<CaptureQuery>,
) -> HandlerResult<PcapNg> {
    let supi = path.supi();
    let live = matches!(query.live, Some(Flag::True));
    if !shared.console.signalling(|s| s.is_on()) {
        return Err(ProblemDetails::conflict("no signalling is kept: `api.signalling_mib` is 0"));
    }
    let tap = match live {
        true => Some(CaptureTap::open(&shared)?),
        false => None,
    };
    let mut capture = Capture {
        shared,
        caller: request.caller,
        supi,
        after: 0,
        n2: N2Packets::default(),
        tap,
        gnbs: BTreeMap::new(),
    };
    let mut first = pcapng::head();
    capture.look(&mut first).await?;
    if !live {
        return Ok(Reply::text(CONTENT_TYPE, first).into());
    }
    let (to_client, chunks) = mpsc::channel(CHUNKS_MAX);
    tokio::spawn(capture.follow(first, to_client));
    Ok(Reply::text(CONTENT_TYPE, Body::new(Chunks(chunks))).into())
}

const CONTENT_TYPE: &str = "application/x-pcapng";

/// A tap, closed with this.
struct CaptureTap {
    shared: Arc<HandlerContext>,
    id: u64,
}

impl CaptureTap {
    fn open(shared: &Arc<HandlerContext>) -> Result<Self, ProblemDetails> {
        let id = shared.console.taps.open();
        let id = id.ok_or_else(|| {
            ProblemDetails::unavailable("four captures are live, which is the limit: end one")
        })?;
        // The control thread may sleep; it has the UPF copy packets from now on.
        shared.console.commands.wake();
        Ok(Self { shared: shared.clone(), id })
    }
}

impl Drop for CaptureTap {
    fn drop(&mut self) {
        self.shared.console.taps.close(self.id);
        self.shared.console.commands.wake();
    }
}

/// A capture under way.
struct Capture {
    shared: Arc<HandlerContext>,
    caller: Option<Caller>,
    supi: Supi,
    /// The last message that is in it.
    after: u64,
    n2: N2Packets,
    tap: Option<CaptureTap>,
    /// Addresses of gNBs by their names.
    gnbs: BTreeMap<String, SocketAddr>,
}

impl Capture {
    /// Sends what is new until the client has gone or may no longer have it.
    async fn follow(mut self, first: Vec<u8>, to_client: mpsc::Sender<Bytes>) {
        let mut chunk = first;
        for looks in 1u64.. {
            if !chunk.is_empty() && to_client.send(std::mem::take(&mut chunk).into()).await.is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = to_client.closed() => return,
            }
            let is_over = looks.is_multiple_of(LOOKS_PER_CHECK)
                && self.caller.as_ref().is_some_and(|c| !self.shared.auth.is_still_valid(c));
            // A control thread that is busy answers at the next look.
            if is_over || self.look(&mut chunk).await.is_err_and(|p| p.status() != 503) {
                return;
            }
        }
    }

    /// Adds what is new.
    async fn look(&mut self, out: &mut Vec<u8>) -> Result<(), ProblemDetails> {
        let console = self.shared.console.clone();
        let ues: Vec<UeId> = console.signalling(|s| s.ues_of(self.supi));
        let found = console.signalling(|s| s.of(&ues, self.after, PER_LOOK_MAX));
        let is_first = self.after == 0;
        if !found.messages.is_empty() || is_first {
            self.follow_tunnels().await?;
            self.look_up_gnbs().await?;
        }
        self.after = found.last;
        let clear = signalling::deciphered(&self.shared, &ues, &found.messages).await?;
        let mut packets: Vec<(u64, Vec<u8>)> = Vec::new();
        for (message, clear) in found.messages.iter().zip(clear) {
            self.add(message, &clear, &mut packets);
        }
        if let Some(tap) = &self.tap {
            for datagram in console.taps.take(tap.id) {
                if let Some(packet) = udp_packet(datagram.from, datagram.to, &datagram.octets) {
                    let mut block = Vec::new();
                    pcapng::packet(&mut block, datagram.at, &packet, "");
                    packets.push((datagram.at.0, block));
                }
            }
        }
        packets.sort_by_key(|(at, _)| *at);
        packets.into_iter().for_each(|(_, block)| out.extend(block));
        Ok(())
    }

    /// Adds a message, and the NAS messages in it that were deciphered.
    fn add(&mut self, message: &Message, clear: &[Vec<u8>], packets: &mut Vec<(u64, Vec<u8>)>) {
        let mut block = Vec::new();
        let (peer, core) = self.ends(message);
        let (from, to) = if message.received { (peer, core) } else { (core, peer) };
        let comment =
            if message.received { format!("from {}", message.peer) } else { format!("to {}", message.peer) };
        match message.interface {
            Interface::N2 => {
                // Dissectors read PER only.
                let per = whimbrel_ngap::to_per(&message.octets);
                let octets = per.as_deref().unwrap_or(&message.octets);
                for packet in self.n2.ngap(from, to, 1, octets) {
                    pcapng::packet(&mut block, message.at, &packet, &comment);
                }
            }
            Interface::N4 => {
                if let Some(packet) = udp_packet(from, to, &message.octets) {
                    pcapng::packet(&mut block, message.at, &packet, &comment);
                }
            }
        }
        for nas in clear {
            pcapng::nas(&mut block, message.at, nas, &comment);
        }
        packets.push((message.at.0, block));
    }

    /// The addresses of a message's ends: peer and core.
    fn ends(&self, message: &Message) -> (SocketAddr, SocketAddr) {
        let config = &self.shared.config;
        match message.interface {
            Interface::N2 => {
                let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, config.n2.port));
                let gnb = self.gnbs.get(&*message.peer).copied().unwrap_or(unknown);
                let own = config.n2.addresses.iter().find(|a| a.is_ipv4() == gnb.is_ipv4());
                let own =
                    own.or(config.n2.addresses.first()).copied().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
                (gnb, SocketAddr::new(own, config.n2.port))
            }
            Interface::N4 => {
                let smf = SocketAddr::new(config.n4.node_id, PFCP_PORT);
                let upf = config.upfs.iter().find(|u| u.name == *message.peer).and_then(|u| u.address);
                (upf.unwrap_or(smf), smf)
            }
        }
    }

    /// Sets the tunnels of the UE's sessions: only their packets are copied.
    async fn follow_tunnels(&mut self) -> Result<(), ProblemDetails> {
        let Some(tap) = &self.tap else { return Ok(()) };
        let ue = self.shared.console.commands.ask(|reply| ConsoleCommand::ShowUe(self.supi, reply)).await?;
        let sessions = ue.map(|ue| ue.sessions).unwrap_or_default();
        let ends = sessions.iter().flat_map(|s| [&s.n3_upf, &s.n3_gnb]).flatten().filter_map(|tunnel| {
            let address: IpAddr = tunnel.address.parse().ok()?;
            Some((address, u32::from_str_radix(&tunnel.teid, 16).ok()?))
        });
        let tunnels: BTreeSet<TunnelEnd> = ends.collect();
        self.shared.console.taps.follow(tap.id, tunnels);
        Ok(())
    }

    /// Learns where gNBs are. Those that have gone keep the address that they had.
    async fn look_up_gnbs(&mut self) -> Result<(), ProblemDetails> {
        for gnb in self.shared.console.commands.ask(ConsoleCommand::ListGnbs).await? {
            if let Ok(address) = gnb.address.parse() {
                self.gnbs.insert(format!("gnb-{}", gnb.id), address);
            }
        }
        Ok(())
    }
}

/// The body of a live capture.
struct Chunks(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}
