//! Lanes: the concurrent procedures of one UE, and what each awaits.
//!
//! A UE has one mobility lane, one for its handover, and four per PDU session; each runs at most one procedure. Lanes are polled
//! in their order here, so that the outputs of one input have one order everywhere.

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, PduSessionId};

use crate::envelope::OutputId;
use crate::input::Input;

/// A lane runs one procedure at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Registration, deregistration, service request and other procedures of the whole UE.
    Mobility,
    /// Handover, concurrent with the mobility lane.
    Handover,
    /// Procedures of one PDU session.
    Session(PduSessionId),
    /// Awaits the gNB's answer to a session resource setup whose procedure has ended.
    PendingSetup(PduSessionId),
    /// Charging of a PDU session, beside the session's procedures.
    Charging(PduSessionId),
    /// Policies of a PDU session, beside the session's procedures.
    Policy(PduSessionId),
}

/// The procedures that can run on a lane; collisions are judged by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Procedure {
    /// TS 23.502 §4.2.2.2.2.
    Registration,
    /// TS 23.502 §4.2.2.2.2 steps 4, 5 and 10, of the former AMF: the UE registers at another.
    UeContextTransfer,
    /// TS 23.502 §4.2.2.3.2.
    DeregistrationByUe,
    /// TS 23.502 §4.2.2.3.3.
    DeregistrationByNetwork,
    /// TS 33.501 §6.1.4, TS 24.501 §4.4.3.5: new keys while the UE is connected.
    Authentication,
    /// TS 23.502 §4.5.1.
    SubscriptionChange,
    /// TS 23.502 §4.2.3.2.
    ServiceRequest,
    /// TS 23.502 §4.2.3.3 steps 4b and 5: the UE is paged.
    Paging,
    /// TS 23.502 §4.2.4.2.
    ConfigurationUpdate,
    /// TS 23.502 §4.2.6.
    AnRelease,
    /// Xn handover: TS 23.502 §4.9.1.2.
    PathSwitch,
    /// N2 handover: TS 23.502 §4.9.1.3.
    Handover,
    /// TS 38.413 §8.2.5: a gNB moves its end of sessions' tunnels.
    PduSessionModifyIndication,
    /// TS 23.502 §4.3.2.2.1.
    PduSessionEstablishment,
    /// TS 23.502 §4.3.3.2, requested by the UE.
    PduSessionModificationByUe,
    /// TS 23.502 §4.3.3.2, requested by the network.
    PduSessionModificationByNetwork,
    /// TS 23.502 §4.3.4.2, requested by the UE.
    PduSessionReleaseByUe,
    /// TS 23.502 §4.3.4.2, requested by the network.
    PduSessionReleaseByNetwork,
    /// TS 23.502 §4.2.3.2 steps 14 to 18: a session's user plane set up again.
    UpConnectionActivation,
    /// TS 23.502 §4.2.6 steps 5 to 7: a session's user plane is deactivated.
    UpConnectionDeactivation,
    /// TS 38.413 §8.2.1: a setup whose answer only decides whether the gNB has to release what it set up.
    PduSessionResourceSetup,
    /// TS 23.527 §4.3: a session is established again at a UPF that has lost it.
    SessionRestoration,
    /// TS 32.255 §5.2.2.2: usage of a session is reported to the CHF, which gives another quota.
    ChargingUpdate,
    /// TS 23.502 §4.16.5.1: an event is reported to the PCF, which gives changed policies.
    PolicyUpdate,
    /// TS 29.502 §5.2.2: what changes in a session is exchanged with another vendor's SMF.
    SmContextUpdate,
}

/// Why an await ended without its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// Another procedure takes over the lane.
    Superseded(Procedure),
    /// The deadline expired.
    TimedOut,
    /// The UE's N2 connection is gone.
    ConnectionLost,
    /// The gNB could not deliver a NAS message; only for awaits that repeat their message.
    NotDelivered,
}

/// One lane in use.
#[derive(Clone, Debug)]
struct OccupiedLane {
    lane: Lane,
    procedure: Procedure,
    /// Which inputs the procedure awaits.
    accepts: fn(&Input) -> bool,
    /// When the await times out.
    deadline: Option<Instant>,
    /// The requests whose answers it awaits: the first answer ends the await.
    answers: Vec<OutputId>,
    /// The timer at whose expiry the procedure repeats its message.
    repeats: Option<&'static str>,
    mail: Option<Result<Input, Interrupt>>,
    /// Spawned and not polled yet.
    fresh: bool,
}

/// The lanes in use, in order. Empty, without memory, for an idle UE.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes(Vec<OccupiedLane>);

impl Lanes {
    fn find(&mut self, lane: Lane) -> Option<&mut OccupiedLane> {
        self.0.iter_mut().find(|o| o.lane == lane)
    }

    /// Whether no procedure runs.
    pub(crate) fn idle(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether no procedure runs but paging, which changes nothing of the UE and begins again when it is needed.
    pub(crate) fn idle_or_paging(&self) -> bool {
        self.0.iter().all(|o| o.procedure == Procedure::Paging)
    }

    /// Whether no procedure runs on another lane.
    pub(crate) fn no_other_lane_runs(&self, lane: Lane) -> bool {
        self.0.iter().all(|o| o.lane == lane)
    }

    /// The procedure that runs on a lane.
    pub(crate) fn procedure(&self, lane: Lane) -> Option<Procedure> {
        self.0.iter().find(|o| o.lane == lane).map(|o| o.procedure)
    }

    /// Whether the procedure on `lane` awaits such an input.
    pub(crate) fn awaits(&self, lane: Lane, input: &Input) -> bool {
        self.0.iter().any(|o| o.lane == lane && o.answers.is_empty() && (o.accepts)(input))
    }

    /// True while the procedure on `lane` awaits the answer to a request.
    pub(crate) fn awaits_answer(&self, lane: Lane) -> bool {
        self.0.iter().any(|o| o.lane == lane && !o.answers.is_empty())
    }

    /// Occupies a free lane.
    pub(crate) fn occupy(&mut self, lane: Lane, procedure: Procedure) {
        debug_assert!(self.procedure(lane).is_none(), "a lane runs one procedure at a time");
        let at = self.0.partition_point(|o| o.lane < lane);
        let occupied = OccupiedLane {
            lane,
            procedure,
            accepts: |_| false,
            deadline: None,
            answers: Vec::new(),
            repeats: None,
            mail: None,
            fresh: true,
        };
        self.0.insert(at, occupied);
    }

    /// The first lane that is ready, which is marked as polled.
    pub(crate) fn ready(&mut self) -> Option<Lane> {
        let o = self.0.iter_mut().find(|o| o.fresh || o.mail.is_some())?;
        o.fresh = false;
        Some(o.lane)
    }

    pub(crate) fn finished(&mut self, lane: Lane) {
        self.0.retain(|o| o.lane != lane);
        if lane != Lane::Handover {
            // A lane that does not wait for it returns it.
            let _ = self.deliver(Lane::Handover, Input::SessionSettled);
            let _ = self.deliver(Lane::Mobility, Input::SessionSettled);
        }
        if let Lane::PendingSetup(psi) = lane {
            let _ = self.deliver(Lane::Session(psi), Input::SessionSettled);
        }
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    /// Stores what the procedure on `lane` awaits.
    pub(crate) fn await_input(
        &mut self,
        lane: Lane,
        accepts: fn(&Input) -> bool,
        deadline: Option<Instant>,
        answers: Vec<OutputId>,
        repeats: Option<&'static str>,
    ) {
        let o = self.find(lane).expect("a procedure runs on its lane");
        (o.accepts, o.deadline, o.answers, o.repeats) = (accepts, deadline, answers, repeats);
    }

    pub(crate) fn take_delivered(&mut self, lane: Lane) -> Option<Result<Input, Interrupt>> {
        let o = self.find(lane)?;
        let mail = o.mail.take()?;
        o.accepts = |_| false;
        (o.deadline, o.answers, o.repeats) = (None, Vec::new(), None);
        Some(mail)
    }

    /// Delivers an input to the procedure on `lane` if it awaits it; else returns it.
    pub(crate) fn deliver(&mut self, lane: Lane, input: Input) -> Result<(), Input> {
        match self.find(lane) {
            Some(o) if o.mail.is_none() && o.answers.is_empty() && (o.accepts)(&input) => {
                o.mail = Some(Ok(input));
                Ok(())
            }
            _ => Err(input),
        }
    }

    /// Delivers an answer to the lane that sent the request, if it still waits; else returns it.
    pub(crate) fn answer(&mut self, to: OutputId, input: Input) -> Result<(), Input> {
        match self.0.iter_mut().find(|o| o.answers.contains(&to) && o.mail.is_none()) {
            Some(o) => {
                o.mail = Some(Ok(input));
                Ok(())
            }
            None => Err(input),
        }
    }

    /// Ends the await of the procedure on `lane`, if one runs.
    pub(crate) fn interrupt(&mut self, lane: Lane, why: Interrupt) {
        if let Some(o) = self.find(lane) {
            o.mail = Some(Err(why));
        }
    }

    /// Ends the lanes that await answers of ended procedures.
    pub(crate) fn interrupt_pending_setups(&mut self, why: Interrupt) {
        for o in self.0.iter_mut().filter(|o| matches!(o.lane, Lane::PendingSetup(_))) {
            o.mail = Some(Err(why));
        }
    }

    /// Wakes the awaits that repeat their message, as one was not delivered. The report does not identify it, as it is
    /// ciphered.
    pub(crate) fn undelivered(&mut self) {
        for o in self.0.iter_mut().filter(|o| o.repeats.is_some() && o.mail.is_none()) {
            o.mail = Some(Err(Interrupt::NotDelivered));
        }
    }

    /// Ends the awaits whose deadline has expired.
    pub(crate) fn expire(&mut self, now: Instant) {
        for o in &mut self.0 {
            if o.mail.is_none() && o.deadline.is_some_and(|d| d <= now) {
                o.mail = Some(Err(Interrupt::TimedOut));
            }
        }
    }

    /// The running timers with their expiry: retransmission timers, T3513 (TS 24.501 §10.2), and guards.
    pub(crate) fn timers(&self) -> impl Iterator<Item = (Lane, &'static str, Instant)> + '_ {
        self.0.iter().filter_map(|o| {
            let other = if o.procedure == Procedure::Paging { "T3513" } else { "guard" };
            Some((o.lane, o.repeats.unwrap_or(other), o.deadline?))
        })
    }

    /// The earliest deadline of any await.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|o| o.deadline).min()
    }
}
