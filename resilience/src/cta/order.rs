//! Operator orders to the CTA as a whole.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::UpfId;
use whimbrel_control::amf::{OverloadOrder, PeerAmfId, Warning, WarningError};
use whimbrel_control::config::Config;
use whimbrel_control::udm::Subscribers;
use whimbrel_ids::{GlobalGnbId, Instant};

use super::{Cta, Entropy, Inspect, Outbox};

/// An order of the CTA's edge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CtaOrder {
    /// [`Cta::configure`].
    Configure(Arc<Config>),
    /// [`Cta::release_upf`].
    ReleaseUpf(UpfId),
    /// [`Cta::warn`].
    Warn(Box<Warning>),
    /// [`Cta::cancel_warning`].
    CancelWarning {
        /// What kind of warning.
        message_identifier: u16,
        /// Which one of that kind.
        serial_number: u16,
    },
    /// [`Cta::order_overload`].
    Overload(OverloadOrder),
    /// Other endpoints at which this AMF is reached, as with a CTA replica: gNBs get AMF CONFIGURATION UPDATE (TS 38.413 §8.7.3.2).
    Endpoints(Vec<IpAddr>),
    /// The host behind these endpoints is gone, and this one serves in its place: gNBs end their associations with it and use those with
    /// this one. The first order after a takeover, given again when an awaited gNB has come.
    TakenOver(Vec<IpAddr>),
    /// The addresses of this SMF set, its own among them, as with a CTA replica: UPFs get them (TS 29.244 §5.22.2).
    SmfAddresses(Vec<IpAddr>),
    /// [`Cta::reset_gnb`].
    ResetGnb(GlobalGnbId),
    /// [`Cta::retire`].
    Retire,
    /// [`Cta::remove`].
    Remove(Option<PeerAmfId>),
    /// Store UEs for the next start of the core, all or those that have changed since the last time: [`Outbox::stored`].
    StoreUes {
        /// All of them.
        all: bool,
    },
    /// S-BFD says that a UPF, or the path to it, has failed: it counts as one that does not answer (TS 23.527 §4.4) until it answers PFCP.
    UpfUnreachable(UpfId),
    /// [`Cta::disconnect_gnb`].
    DisconnectGnb(GlobalGnbId),
    /// [`Cta::drain_upf`].
    DrainUpf(UpfId, Option<Instant>),
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// It was carried out.
    Done,
    /// The number of gNBs that get a warning or its cancellation; or why none does.
    Warned(Result<usize, WarningError>),
    /// True if the gNB to be reset or disconnected is up.
    Reset(bool),
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Carries an order out.
    pub fn order(&mut self, now: Instant, order: CtaOrder, out: &mut Outbox) -> OrderOutcome {
        match order {
            CtaOrder::Configure(config) => self.configure(now, config, out),
            CtaOrder::ReleaseUpf(upf) => self.release_upf(now, upf, out),
            CtaOrder::Warn(warning) => return OrderOutcome::Warned(self.warn(now, *warning, out)),
            CtaOrder::CancelWarning { message_identifier, serial_number } => {
                return OrderOutcome::Warned(self.cancel_warning(
                    now,
                    message_identifier,
                    serial_number,
                    out,
                ));
            }
            CtaOrder::Overload(order) => self.order_overload(now, order, out),
            CtaOrder::Endpoints(endpoints) => self.endpoints(now, endpoints, out),
            CtaOrder::TakenOver(lost) => self.taken_over(now, lost, out),
            CtaOrder::SmfAddresses(addresses) => self.smf_addresses(now, addresses, out),
            CtaOrder::ResetGnb(gnb) => return OrderOutcome::Reset(self.reset_gnb(now, gnb, out)),
            CtaOrder::DisconnectGnb(gnb) => return OrderOutcome::Reset(self.disconnect_gnb(now, gnb, out)),
            CtaOrder::Retire => self.retire(now, out),
            CtaOrder::Remove(to) => self.remove(now, to, out),
            CtaOrder::StoreUes { all } => self.store_ues(all, out),
            CtaOrder::DrainUpf(upf, until) => self.drain_upf(now, upf, until, out),
            CtaOrder::UpfUnreachable(upf) => self.upf_unreachable(now, upf, out),
        }
        OrderOutcome::Done
    }
}
