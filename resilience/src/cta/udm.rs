//! Requests of UEs to the UDM: the embedded one answers in the same turn, a remote one with a later input.

use whimbrel_control::config::UdmFunction;
use whimbrel_control::envelope::Payload;
use whimbrel_control::udm::{
    AuthData, DirectoryOutcome, Identity, Resynchronisation, Subscribers, UdmAnswer, UdmError, UdmRequest,
};
use whimbrel_control::{Command, OutputId, UeId};
use whimbrel_ids::{Instant, Supi};

use super::{Cta, Entropy, Inspect, Outbox};

/// A request of a UE to a remote UDM.
#[derive(Clone, Debug)]
pub struct UdmQuery {
    /// The UE that waits for the answer, if any waits.
    pub ue: UeId,
    /// The output that the answer names.
    pub to: OutputId,
    /// Operation of the UDM.
    pub request: UdmRequest,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Answers a request here, or passes it on to the remote UDM.
    pub(super) fn ask_udm(&mut self, now: Instant, query: UdmQuery, out: &mut Outbox) {
        let UdmQuery { ue, to, request } = query;
        if self.config.udm == UdmFunction::Remote && request.is_for_remote_udm() {
            if let UdmRequest::Deregister(supi) = request {
                // A UE that registered in another slot, or at another AMF, leaves that registration alone. So does one that has just gone to one.
                let registered = self.directory.registered(supi) == Some(ue);
                self.directory.follow(ue, &request, UdmAnswer::Deregistered);
                if !registered || self.has_left(ue) {
                    return;
                }
            }
            return out.udm.push(UdmQuery { ue, to, request });
        }
        let registers = registers(&request);
        let (directory, subscribers) = (&mut self.directory, &mut self.subscribers);
        if let Some(outcome) = self.outside.udm(now, ue, request, directory, subscribers) {
            self.udm_outcome((ue, to), registers, outcome);
        }
    }

    /// Nudm_UEAuthentication_Get of an AUSF beside this core (TS 29.503 §5.4.2). It concerns no UE of this core, and sequence numbers are not
    /// replicated: they continue from the clock and the store.
    pub fn generate_auth_data(
        &mut self,
        now: Instant,
        identity: Identity,
        resynchronisation: Option<Resynchronisation>,
    ) -> Result<AuthData, UdmError> {
        let rand = self.entropy.draw();
        let request = UdmRequest::GenerateAuthData { identity, rand, resynchronisation };
        let no_ue = UeId { slot: 0, generation: 0 };
        match self.directory.handle(now, no_ue, request, &mut self.subscribers).answer {
            UdmAnswer::AuthData(data) => data.map_err(|(error, _)| error),
            _ => Err(UdmError::Unavailable),
        }
    }

    /// The remote UDM has answered.
    pub(super) fn udm_answered(&mut self, ue: UeId, to: OutputId, request: &UdmRequest, answer: UdmAnswer) {
        if self.is_served(ue) && !matches!(request, UdmRequest::Deregister(_)) {
            let outcome = self.directory.follow(ue, request, answer);
            self.udm_outcome((ue, to), registers(request), outcome);
        }
    }

    /// DeregistrationNotification (TS 29.503 §5.3.2.3.2): the subscriber is registered at another AMF.
    pub(super) fn deregistered_by_udm(&mut self, supi: Supi) {
        if let Some(ue) = self.directory.deregistered_by_udm(supi) {
            self.inbox.push_back((ue, Payload::Command(Command::RegisteredElsewhere)));
        }
    }

    fn udm_outcome(
        &mut self,
        (ue, to): (UeId, OutputId),
        registers: Option<Supi>,
        DirectoryOutcome { answer, superseded }: DirectoryOutcome,
    ) {
        self.subscriber_known(ue, registers, &answer);
        self.inbox.push_back((ue, Payload::Udm { to, answer }));
        if let Some(former) = superseded {
            self.inbox.push_back((former, Payload::Command(Command::Superseded)));
        }
    }
}

fn registers(request: &UdmRequest) -> Option<Supi> {
    match request {
        UdmRequest::Register(supi) => Some(*supi),
        _ => None,
    }
}
