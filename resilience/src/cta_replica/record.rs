//! The stream from the primary CTA to its replica: each input with the external values that it used, as octets.
//!
//! Both run the same code (a log is never run by another version), so the form is serde's of our types, and the version in front refuses
//! everything else. A snapshot is no log: a CTA with the same [`LinkVersions`] may start from one. The link between the two is reliable,
//! ordered and protected: a record may hold the keys of a vector.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crc32c::crc32c;
use serde::{Deserialize, Serialize};
use whimbrel_control::amf::PeerAmfId;
use whimbrel_control::charging::ChargingAnswer;
use whimbrel_control::open;
use whimbrel_control::remote_amf::{SmContextRequest, TransferAnswer};
use whimbrel_control::sm_contexts::{SmfAnswer, SmfOrder};
use whimbrel_control::sm_policy::{PolicyAnswer, PolicyNotification};
use whimbrel_control::udm::{Subscribers, UdmAnswer, UdmRequest};
use whimbrel_control::{AssociationId, Command, OutputId, UeId, UpfId};
use whimbrel_ids::{GlobalGnbId, Instant, PduSessionId, Supi, Tai};

use super::{LinkEnd, ReplicaFault};
use crate::cta::{CtaState, ExternalValues, StateOf};
use crate::link::{CpfCommand, CpfReport, LinkVersions};
use crate::region::Rings;
use crate::replication::CpfId;
use crate::{CodeVersion, Cta, CtaOrder, Entropy, Input, Inspect, OrderOutcome, Outbox};

/// One message to the CTA replica. `Debug` shows its length alone: it may hold keys.
#[derive(Clone)]
pub struct ReplicaRecord(Vec<u8>);

impl ReplicaRecord {
    /// The octets on the link.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ReplicaRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplicaRecord({} octets)", self.0.len())
    }
}

/// What a record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordHead {
    code: CodeVersion,
    /// The outputs of the inputs up to this one have left.
    pub(super) left: u64,
    /// The input's number and time. `None`: the record carries `left` alone.
    pub(super) input: Option<(u64, Instant)>,
    /// The input is the message of this number of an association.
    pub(super) received: Option<(AssociationId, u64)>,
}

impl RecordHead {
    pub(super) fn new(left: u64, input: Option<(u64, Instant)>) -> Self {
        Self { code: CodeVersion::own(), left, input, received: None }
    }

    pub(super) fn with_received(self, received: Option<(AssociationId, u64)>) -> Self {
        Self { received, ..self }
    }
}

/// An input of the CTA, or an order. Its messages are views over what was received.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RecordedStep<'a> {
    AssociationUp {
        association: AssociationId,
        outbound_streams: u16,
        addresses: Vec<IpAddr>,
    },
    AssociationDown(AssociationId),
    Ngap(AssociationId, u16, &'a [u8]),
    Pfcp(UpfId, &'a [u8]),
    Command(UeId, Command),
    Waited(Duration),
    SubscribersChanged(Option<Vec<Supi>>),
    /// A CPF's report, and the number of commands that it has acknowledged by then.
    Cpf(CpfId, u64, CpfReport),
    CpfLost(CpfId),
    Rings(Rings),
    Move(UeId, CpfId),
    PeerAmf(PeerAmfId, &'a [u8]),
    Tick,
    Order(CtaOrder),
    Broker(UeId, OutputId, open::BrokerAnswer),
    Predicted(UeId, GlobalGnbId, Tai),
    AssociationAnswered(AssociationId),
    AddressConfirmed(AssociationId, IpAddr),
    Udm(UeId, OutputId, Box<(UdmRequest, UdmAnswer)>),
    DeregisteredByUdm(Supi),
    Charging(UeId, OutputId, Box<ChargingAnswer>),
    Policy(UeId, OutputId, Box<PolicyAnswer>),
    PolicyNotified(UeId, PduSessionId, Box<PolicyNotification>),
    SmContext(UeId, OutputId, PduSessionId, Box<SmfAnswer>),
    SmfOrdered(UeId, PduSessionId, Box<SmfOrder>),
    SmContextRequested(Box<SmContextRequest>),
    TransferAnswered(UeId, TransferAnswer),
}

impl<'a> RecordedStep<'a> {
    /// An input; `confirmed`: the number of commands that a CPF has acknowledged.
    pub(super) fn of(input: Input<'a>, confirmed: impl FnOnce(CpfId) -> u64) -> Self {
        match input {
            Input::AssociationUp { association, outbound_streams, addresses } => {
                Self::AssociationUp { association, outbound_streams, addresses }
            }
            Input::AssociationAnswered(association) => Self::AssociationAnswered(association),
            Input::AddressConfirmed(association, address) => Self::AddressConfirmed(association, address),
            Input::AssociationDown(association) => Self::AssociationDown(association),
            Input::Ngap(association, stream, octets) => Self::Ngap(association, stream, octets),
            Input::Pfcp(upf, octets) => Self::Pfcp(upf, octets),
            Input::Command(ue, command) => Self::Command(ue, command),
            Input::Waited(delay) => Self::Waited(delay),
            Input::SubscribersChanged(changed) => Self::SubscribersChanged(changed.map(<[Supi]>::to_vec)),
            Input::Cpf(from, message) => Self::Cpf(from, confirmed(from), message),
            Input::CpfLost(cpf) => Self::CpfLost(cpf),
            Input::Rings(rings) => Self::Rings(rings),
            Input::Move(ue, to) => Self::Move(ue, to),
            Input::PeerAmf(from, octets) => Self::PeerAmf(from, octets),
            Input::Broker(ue, to, answer) => Self::Broker(ue, to, answer),
            Input::Udm(ue, to, exchange) => Self::Udm(ue, to, exchange),
            Input::DeregisteredByUdm(supi) => Self::DeregisteredByUdm(supi),
            Input::Charging(ue, to, answer) => Self::Charging(ue, to, answer),
            Input::Policy(ue, to, answer) => Self::Policy(ue, to, answer),
            Input::PolicyNotified(ue, psi, notification) => Self::PolicyNotified(ue, psi, notification),
            Input::SmContext(ue, to, psi, answer) => Self::SmContext(ue, to, psi, answer),
            Input::SmfOrdered(ue, psi, order) => Self::SmfOrdered(ue, psi, order),
            Input::SmContextRequested(request) => Self::SmContextRequested(request),
            Input::TransferAnswered(ue, answer) => Self::TransferAnswered(ue, answer),
            Input::Predicted(ue, gnb, tai) => Self::Predicted(ue, gnb, tai),
            Input::Tick => Self::Tick,
        }
    }

    /// The CPF that sent it.
    pub(super) fn sender(&self) -> Option<CpfId> {
        match self {
            Self::Cpf(from, ..) => Some(*from),
            _ => None,
        }
    }

    /// Runs it in a CTA.
    pub(super) fn run<S: Subscribers, E: Entropy, I: Inspect>(
        self,
        cta: &mut Cta<S, E, I>,
        now: Instant,
        out: &mut Outbox,
    ) -> OrderOutcome {
        let changed;
        let input = match self {
            Self::AssociationUp { association, outbound_streams, addresses } => {
                Input::AssociationUp { association, outbound_streams, addresses }
            }
            Self::AssociationAnswered(association) => Input::AssociationAnswered(association),
            Self::AddressConfirmed(association, address) => Input::AddressConfirmed(association, address),
            Self::AssociationDown(association) => Input::AssociationDown(association),
            Self::Ngap(association, stream, octets) => Input::Ngap(association, stream, octets),
            Self::Pfcp(upf, octets) => Input::Pfcp(upf, octets),
            Self::Command(ue, command) => Input::Command(ue, command),
            Self::Waited(delay) => Input::Waited(delay),
            Self::SubscribersChanged(supis) => {
                changed = supis;
                Input::SubscribersChanged(changed.as_deref())
            }
            Self::Cpf(from, _, message) => Input::Cpf(from, message),
            Self::CpfLost(cpf) => Input::CpfLost(cpf),
            Self::Rings(rings) => Input::Rings(rings),
            Self::Move(ue, to) => Input::Move(ue, to),
            Self::PeerAmf(from, octets) => Input::PeerAmf(from, octets),
            Self::Broker(ue, to, answer) => Input::Broker(ue, to, answer),
            Self::Udm(ue, to, exchange) => Input::Udm(ue, to, exchange),
            Self::DeregisteredByUdm(supi) => Input::DeregisteredByUdm(supi),
            Self::Charging(ue, to, answer) => Input::Charging(ue, to, answer),
            Self::Policy(ue, to, answer) => Input::Policy(ue, to, answer),
            Self::PolicyNotified(ue, psi, notification) => Input::PolicyNotified(ue, psi, notification),
            Self::SmContext(ue, to, psi, answer) => Input::SmContext(ue, to, psi, answer),
            Self::SmfOrdered(ue, psi, order) => Input::SmfOrdered(ue, psi, order),
            Self::SmContextRequested(request) => Input::SmContextRequested(request),
            Self::TransferAnswered(ue, answer) => Input::TransferAnswered(ue, answer),
            Self::Predicted(ue, gnb, tai) => Input::Predicted(ue, gnb, tai),
            Self::Tick => Input::Tick,
            Self::Order(order) => return cta.order(now, order, out),
        };
        cta.handle(now, input, out);
        OrderOutcome::Done
    }
}

/// The number and length of an input's outputs: a divergence shows here, or sooner or later in the external values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shape {
    ngap: (u32, u32),
    pfcp: (u32, u32),
    cpfs: u32,
}

impl Shape {
    pub(super) fn of(out: &Outbox) -> Self {
        let sum = |lengths: &mut dyn Iterator<Item = usize>| {
            lengths.fold((0, 0), |(n, octets), length| (n + 1, octets + length as u32))
        };
        Self {
            ngap: sum(&mut out.ngap.iter().map(|(_, _, octets)| octets.len())),
            pfcp: sum(&mut out.pfcp.iter().map(|(_, octets)| octets.len())),
            cpfs: out.cpfs.len() as u32,
        }
    }
}

/// A record under construction: its input is written before it is handled, the rest after.
pub(super) struct Draft(Vec<u8>);

impl Draft {
    pub(super) fn new(head: RecordHead, step: &RecordedStep<'_>) -> Self {
        let room = Vec::with_capacity(256);
        Self(postcard::to_extend(&(head, step), room).expect("inputs can be written"))
    }

    pub(super) fn end(self, taken: &ExternalValues, shape: Shape) -> ReplicaRecord {
        ReplicaRecord(postcard::to_extend(&(taken, shape), self.0).expect("answers can be written"))
    }

    /// A record that only reports how much has left.
    pub(super) fn left(left: u64) -> ReplicaRecord {
        ReplicaRecord(postcard::to_allocvec(&RecordHead::new(left, None)).expect("numbers can be written"))
    }
}

/// A CTA between two inputs, from where a replica follows it. `Debug` shows its length alone: it holds keys.
#[derive(Clone)]
pub struct Snapshot(Vec<u8>);

/// The CTA's ends of its links to CPFs.
pub(super) type CpfLinks = BTreeMap<CpfId, LinkEnd<CpfCommand>>;

/// What a snapshot holds beside the CTA's state.
#[derive(Serialize, Deserialize)]
pub(super) struct Beside<L> {
    pub(super) links: L,
    pub(super) number: u64,
    pub(super) now: Instant,
}

impl Snapshot {
    pub(super) fn of(state: &StateOf<'_>, beside: &Beside<&CpfLinks>) -> Self {
        let language = LinkVersions::own().octets().to_vec();
        let mut octets = postcard::to_extend(&(state, beside), language).expect("a state can be written");
        octets.extend(crc32c(&octets).to_be_bytes());
        Self(octets)
    }

    /// What goes to the CTA replica's host, in pieces that its link can carry.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn read(octets: &[u8]) -> Result<(CtaState, Beside<CpfLinks>), ReplicaFault> {
        let (octets, crc) = octets.split_last_chunk().ok_or(ReplicaFault::Unreadable)?;
        let body = octets.strip_prefix(&LinkVersions::own().octets()).ok_or(ReplicaFault::OtherVersion)?;
        if crc32c(octets) != u32::from_be_bytes(*crc) {
            return Err(ReplicaFault::Unreadable);
        }
        match postcard::take_from_bytes(body) {
            Ok((state, [])) => Ok(state),
            _ => Err(ReplicaFault::Unreadable),
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({} octets)", self.0.len())
    }
}

/// What a record with an input holds beside its head.
pub(super) type RecordBody<'a> = (RecordedStep<'a>, ExternalValues, Shape);

/// A record as it came.
pub(super) fn read(octets: &[u8]) -> Result<(RecordHead, Option<RecordBody<'_>>), ReplicaFault> {
    let (head, rest): (RecordHead, _) =
        postcard::take_from_bytes(octets).map_err(|_| ReplicaFault::Unreadable)?;
    if head.code != CodeVersion::own() {
        return Err(ReplicaFault::OtherVersion);
    }
    let (body, rest) = match head.input {
        None => (None, rest),
        Some(_) => postcard::take_from_bytes(rest)
            .map(|(body, rest)| (Some(body), rest))
            .map_err(|_| ReplicaFault::Unreadable)?,
    };
    if rest.is_empty() { Ok((head, body)) } else { Err(ReplicaFault::Unreadable) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a_head() -> RecordHead {
        RecordHead::new(300, Some((301, Instant(1_000_000))))
    }

    fn record(head: RecordHead) -> ReplicaRecord {
        let octets = [0, 21, 0, 3];
        let draft = Draft::new(head, &RecordedStep::Ngap(AssociationId(7), 2, &octets));
        draft.end(&ExternalValues::default(), Shape::of(&Outbox::default()))
    }

    #[test]
    fn an_input_is_read_as_it_was_written_and_nothing_beside_it() {
        let record = record(a_head());
        let Ok((head, Some((RecordedStep::Ngap(association, stream, octets), taken, shape)))) =
            read(record.octets())
        else {
            panic!("it was written so")
        };
        assert_eq!((head, association, stream, octets), (a_head(), AssociationId(7), 2, &[0, 21, 0, 3][..]));
        assert!(taken.is_empty() && shape == Shape::of(&Outbox::default()));
        let longer = [record.octets(), &[0]].concat();
        for octets in [&longer[..], &record.octets()[1..], &record.octets()[..20], &[]] {
            assert!(read(octets).is_err());
        }
        assert!(matches!(read(Draft::left(9).octets()), Ok((RecordHead { left: 9, input: None, .. }, None))));
    }

    /// Snapshots as the version of the links has them, a line each: `sim/examples/flat.rs` writes them (`-- frames snapshot`).
    const SNAPSHOTS: &str = include_str!("testdata/snapshot.hex");

    #[test] // ARCHITECTURE.md, "Versions"
    fn snapshots_do_not_change_without_the_version_of_links() {
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let advice = "raise LINK_VERSION, say so in the changelog, and store what `cargo run --release -p whimbrel-sim --example flat -- frames snapshot` \
                      writes";
        for line in SNAPSHOTS.lines() {
            let octets: Vec<u8> = line.as_bytes().chunks(2).map(octet).collect();
            let (state, beside) = Snapshot::read(&octets).unwrap_or_else(|e| panic!("{e:?}: {advice}"));
            let again = postcard::to_allocvec(&(state, beside)).unwrap();
            let body = &octets[LinkVersions::own().octets().len()..octets.len() - size_of::<u32>()];
            assert!(again == body, "{advice}");
        }
    }

    #[test] // DESIGN: "versions"
    fn what_other_code_wrote_is_refused() {
        let head = RecordHead { code: CodeVersion(CodeVersion::own().0 ^ 1), ..a_head() };
        assert!(matches!(read(record(head).octets()), Err(ReplicaFault::OtherVersion)));
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(octets in prop::collection::vec(any::<u8>(), 0..200), at in 0..60usize) {
            let _ = read(&octets);
            let mut changed = record(a_head()).octets().to_vec();
            let at = at % changed.len();
            changed[at] ^= octets.first().copied().unwrap_or(1);
            let _ = read(&changed);
        }
    }
}
