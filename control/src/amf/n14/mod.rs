//! A UE moves between this AMF and another one (TS 23.502 §4.9.1.3, §4.2.2.2.2); the messages are in [`crate::n14`].
//!
//! In a handover [`source`] is the AMF that the UE leaves, [`target`] the one that it comes to; [`registration`] has both sides for an idle
//! UE that comes to another AMF, [`removal`] for one whose AMF is to be removed.

pub(crate) mod registration;
pub(crate) mod removal;
pub(crate) mod source;
pub(crate) mod target;

use crate::envelope::{Effect, HandoverTarget};
use crate::input::Input;
use crate::n14::{N14, N14Body, PeerAmfId, Relation};
use crate::procedure::{Lane, Ue, out_of_state};

/// Sends a message to a peer AMF.
fn send_n14(ue: Ue, to: PeerAmfId, relation: Relation, body: N14Body) {
    let octets = N14 { relation, body }.to_flat();
    ue.emit(Effect::PeerAmf { to, octets }, None);
}

/// Delivers a peer AMF's message to the procedure that awaits it, a handover or a registration.
fn deliver(ue: Ue, body: N14Body) {
    let input = Input::PeerAmf(body.into());
    let stray = ue.with(|p| {
        p.lanes.deliver(Lane::Handover, input).or_else(|input| p.lanes.deliver(Lane::Mobility, input))
    });
    if stray.is_err() {
        out_of_state(ue);
    }
}

/// A message of a peer AMF about this UE. `to`: the target gNB of CREATE UE CONTEXT, if it is connected here.
pub(crate) fn received(ue: Ue, from: PeerAmfId, octets: &[u8], to: Option<&HandoverTarget>) {
    let Ok(N14 { relation, body }) = N14::from_octets(octets) else { return out_of_state(ue) };
    match body {
        N14Body::CreateUeContext(context) => target::create(ue, from, relation, context, to.cloned()),
        N14Body::TransferUeContext(shown) => registration::transfer(ue, from, relation, shown),
        body @ (N14Body::UeContextTransferred(_) | N14Body::UeContextNotTransferred(_)) => {
            registration::answered(ue, from, relation, body);
        }
        N14Body::ForwardUeContext(forwarded) => removal::take_over(ue, from, relation, &forwarded, to),
        N14Body::Uplink(octets) => removal::passed_on(ue, &octets),
        body if body.is_of_source() => target::handle(ue, from, relation, body),
        body => source::handle(ue, from, relation, body),
    }
}
