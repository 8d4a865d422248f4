//! One codec in the place of another. The core reads and writes NGAP with its own codec, in ASN.1 or, where gNBs agreed on it, in
//! fastwire; where a conventional one is to be measured, the time that this takes for the very same message is added to the core's, and
//! the time of our own is taken off. The transfers within a message are ASN.1 too: the SMF reads and writes the transfers of gNBs.
//! Containers between gNBs through the core transparent containers, and NAS, the core does not read by ASN.1.

use std::hint::black_box;

use whimbrel_ngap::{
    HandoverCommandTransfer, HandoverRequestAcknowledgeTransfer, HandoverRequiredTransfer, Message,
    PathSwitchRequestAcknowledgeTransfer, PathSwitchRequestTransfer, PduSessionResourceSetupRequestTransfer,
    PduSessionResourceSetupResponseTransfer, TransferSyntax,
};

use super::clock::timed;
use crate::codec::rasn_ngap;

/// What NGAP is read and written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    /// ASN.1, by our own codec.
    Lean,
    /// ASN.1, by rasn, which builds values and allocates for them.
    Conventional,
    /// Fastwire, as gNBs and core agree on it: FlatBuffers with single-value unions, by our own codec. Transfers stay ASN.1.
    Fastwire,
}

/// What a message takes with another codec and with our own, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) theirs: u64,
    pub(super) ours: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.theirs += other.theirs;
        self.ours += other.ours;
    }
}

impl Cost {
    /// How much longer it takes with the other one.
    pub(super) fn more(self) -> i64 {
        self.theirs as i64 - self.ours as i64
    }
}

impl Codec {
    /// What gNBs and core say to each other in.
    pub(super) fn syntax(self) -> TransferSyntax {
        match self {
            Self::Lean | Self::Conventional => TransferSyntax::Per,
            Self::Fastwire => TransferSyntax::Fastwire,
        }
    }

    /// What it costs to read a message that a gNB sent; nothing is measured where the codec is our own.
    pub(super) fn read(self, octets: &[u8]) -> Cost {
        match self {
            Self::Lean | Self::Fastwire => Cost::default(),
            Self::Conventional => {
                let (theirs, time) = timed(|| {
                    let message = rasn_ngap::read(octets)?;
                    let transfers = message.read_transfers()?;
                    Ok::<_, rasn::error::DecodeError>((message, transfers))
                });
                black_box(theirs.expect("types were written for all that is sent here"));
                let ((), ours) = timed(|| {
                    let message = black_box(Message::decode(octets));
                    message.iter().for_each(read_transfers);
                });
                Cost { theirs: time, ours }
            }
        }
    }

    /// The same for writing one that goes to a gNB.
    pub(super) fn write(self, octets: &[u8]) -> Cost {
        if self != Self::Conventional {
            return Cost::default();
        }
        let Ok(message) = Message::decode(octets) else { return Cost::default() };
        let theirs = rasn_ngap::read(octets).expect("types were written for all that is sent here");
        let inner = theirs.read_transfers().expect("types were written for all transfers");
        let transfers = writers(&message);
        let (written, theirs) = timed(|| {
            inner.iter().for_each(|t| drop(black_box(rasn_ngap::write_transfer(t))));
            black_box(rasn_ngap::write(&theirs))
        });
        debug_assert_eq!(written.ok().as_deref(), Some(octets), "two encoders of one standard");
        let mut out = Vec::with_capacity(octets.len());
        let ((), ours) = timed(|| {
            transfers.iter().for_each(|t| drop(black_box(t())));
            message.encode(black_box(&mut out));
        });
        Cost { theirs, ours }
    }
}

/// The lists of sessions whose transfers the SMF reads or writes.
macro_rules! transfers {
    ($($message:ident.$list:ident.$octets:ident: $t:ident),* $(,)?) => {
        /// Reads them with our codec.
        fn read_transfers(message: &Message) {
            match message {
                $( Message::$message(m) => m.$list.iter().for_each(|i| {
                    black_box($t::decode(&i.$octets).is_ok());
                }), )*
                _ => {}
            }
        }

        /// What writes each of them with our codec.
        fn writers(message: &Message) -> Vec<Box<dyn Fn() -> Vec<u8>>> {
            match message {
                $( Message::$message(m) => {
                    let values = m.$list.iter().filter_map(|i| $t::decode(&i.$octets).ok());
                    values.map(|t| Box::new(move || t.to_vec()) as Box<dyn Fn() -> Vec<u8>>).collect()
                } )*
                _ => Vec::new(),
            }
        }
    };
}
transfers! {
    InitialContextSetupRequest.pdu_session_resource_setup_list_cxt_req.pdu_session_resource_setup_request_transfer:
        PduSessionResourceSetupRequestTransfer,
    InitialContextSetupResponse.pdu_session_resource_setup_list_cxt_res.transfer:
        PduSessionResourceSetupResponseTransfer,
    PduSessionResourceSetupRequest.pdu_session_resource_setup_list_su_req.pdu_session_resource_setup_request_transfer:
        PduSessionResourceSetupRequestTransfer,
    PduSessionResourceSetupResponse.pdu_session_resource_setup_list_su_res.transfer:
        PduSessionResourceSetupResponseTransfer,
    HandoverRequired.pdu_session_resource_list_ho_rqd.transfer: HandoverRequiredTransfer,
    HandoverRequest.pdu_session_resource_setup_list_ho_req.handover_request_transfer:
        PduSessionResourceSetupRequestTransfer,
    HandoverRequestAcknowledge.pdu_session_resource_admitted_list.transfer: HandoverRequestAcknowledgeTransfer,
    HandoverCommand.pdu_session_resource_handover_list.transfer: HandoverCommandTransfer,
    PathSwitchRequest.pdu_session_resource_to_be_switched_dl_list.transfer: PathSwitchRequestTransfer,
    PathSwitchRequestAcknowledge.pdu_session_resource_switched_list.transfer: PathSwitchRequestAcknowledgeTransfer,
}
