//! Trials: inputs that may have ended a CPF run in a replay sandbox before another CPF runs them.
//!
//! A panic costs one UE ([`Cpf::run`]). An input that aborts the process, overflows its stack or never returns costs the process, and a CPF
//! that took the UE over and replayed it would follow. So inputs that a lost CPF has not answered do not run at once in the next one: a
//! *replay sandbox*, a process without UEs of its own, runs them first, while the CPF serves its other UEs. All such inputs are tried, not
//! the first alone: a CPF answers at the end of its turn, so the first without an answer may be harmless.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::{Checkpoint, Envelope, FlatError, UeId};

use super::Cpf;
use crate::link::{LinkError, read_envelopes, write_envelopes};

/// Inputs of one UE to be tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its number, counted by the CPF.
    pub id: u64,
    /// The UE of the trial.
    pub ue: UeId,
    /// The checkpoint from which it starts; `None` for a UE that begins.
    pub state: Option<Checkpoint>,
    /// The inputs from there, in order.
    pub inputs: Vec<Envelope>,
}

/// The outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// All inputs ran to completion.
    Passed,
    /// So many inputs ran to completion, and the next one ended the sandbox.
    CrashedAfter(u32),
}

/// Messages to a replay sandbox.
#[derive(Debug)]
pub enum ToReplaySandbox {
    /// The configuration for later trials.
    Configure(Arc<Config>),
    /// Run a trial and report its progress.
    Try(Trial),
}

#[derive(Serialize, Deserialize)]
enum TrialHead {
    Configure,
    Try { id: u64, ue: UeId, state_octets: Option<u32> },
}

impl ToReplaySandbox {
    /// Appends its octets. They may hold keys.
    pub fn write(&self, to: &mut Vec<u8>) {
        let head = |head: &TrialHead, to: &mut Vec<u8>| {
            *to = postcard::to_extend(head, std::mem::take(to)).expect("heads can be written");
        };
        match self {
            Self::Configure(config) => {
                head(&TrialHead::Configure, to);
                to.extend_from_slice(config.to_flat().octets());
            }
            Self::Try(Trial { id, ue, state, inputs }) => {
                let state = state.as_ref().map(Checkpoint::octets);
                let state_octets =
                    state.map(|s| u32::try_from(s.len()).expect("a checkpoint is far shorter"));
                head(&TrialHead::Try { id: *id, ue: *ue, state_octets }, to);
                to.extend_from_slice(state.unwrap_or_default());
                write_envelopes(inputs, to);
            }
        }
    }

    /// Reads what [`Self::write`] wrote. Errors: each [`LinkError`].
    pub fn read(octets: &[u8]) -> Result<Self, LinkError> {
        let (head, rest) = postcard::take_from_bytes(octets).map_err(|_| LinkError::Malformed)?;
        let TrialHead::Try { id, ue, state_octets } = head else {
            return Ok(Self::Configure(Arc::new(Config::from_flat(rest)?)));
        };
        let state_end = state_octets.unwrap_or(0) as usize;
        let (state, inputs) = rest.split_at_checked(state_end).ok_or(LinkError::Malformed)?;
        let state = state_octets.map(|_| Checkpoint::from_octets(state)).transpose()?;
        Ok(Self::Try(Trial { id, ue, state, inputs: read_envelopes(inputs)? }))
    }
}

/// The CPF of the sandbox process, without UEs of its own.
#[derive(Default)]
pub struct ReplaySandbox {
    cpf: Option<Cpf>,
}

impl ReplaySandbox {
    /// Handles a message. Returns the number of a trial that ran to completion. `survived` is called when a trial begins and after each
    /// input, with the number of inputs that have run: if the process ends, the next input is the cause.
    ///
    /// Errors: each [`FlatError`] of the checkpoint, if it cannot be read.
    pub fn handle(
        &mut self,
        message: ToReplaySandbox,
        mut survived: impl FnMut(u64, u32),
    ) -> Result<Option<u64>, FlatError> {
        match (message, &mut self.cpf) {
            (ToReplaySandbox::Configure(config), Some(cpf)) => cpf.configure(config),
            (ToReplaySandbox::Configure(config), none) => *none = Some(Cpf::new(config)),
            (ToReplaySandbox::Try(_), None) => {}
            (ToReplaySandbox::Try(trial), Some(cpf)) => {
                if let Some(state) = &trial.state {
                    cpf.restore(state.context()?);
                }
                survived(trial.id, 0);
                for (inputs, input) in (1..).zip(&trial.inputs) {
                    cpf.run(input);
                    survived(trial.id, inputs);
                }
                cpf.forget(trial.ue);
                return Ok(Some(trial.id));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_control::{Payload, UeContext};
    use whimbrel_ids::{Instant, Tmsi};

    use super::*;

    const UE: UeId = UeId { slot: 7, generation: 3 };

    fn trial() -> Trial {
        let mut ue = UeContext::new(UE);
        ue.clock = 4;
        let tick = |clock| Envelope {
            code_version: 1,
            ue: UE,
            cta_term: 1,
            owner_term: 2,
            clock,
            time: Instant(clock),
            seed: [1; 16],
            tmsi: Tmsi(5),
            config_version: 1,
            upfs: Default::default(),
            payload: Payload::Tick,
        };
        Trial { id: 9, ue: UE, state: Checkpoint::of(&ue), inputs: vec![tick(5), tick(6)] }
    }

    fn octets(message: &ToReplaySandbox) -> Vec<u8> {
        let mut octets = Vec::new();
        message.write(&mut octets);
        octets
    }

    #[test]
    fn a_trial_is_read_as_it_was_written() {
        for trial in [trial(), Trial { state: None, ..trial() }, Trial { inputs: Vec::new(), ..trial() }] {
            let message = ToReplaySandbox::Try(trial);
            let written = octets(&message);
            assert_eq!(format!("{:?}", ToReplaySandbox::read(&written).unwrap()), format!("{message:?}"));
            assert!(ToReplaySandbox::read(&written[..written.len() - 1]).is_err());
            assert!(ToReplaySandbox::read(&[&written[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn without_a_configuration_no_trial_runs() {
        assert_eq!(
            ReplaySandbox::default().handle(ToReplaySandbox::Try(trial()), |_, _| panic!("it tries")),
            Ok(None)
        );
    }

    proptest! {
        #[test]
        fn any_octets_are_refused_or_read(any in proptest::collection::vec(any::<u8>(), 0..200), head in 0u8..3) {
            for any in [any.clone(), [&[head], any.as_slice()].concat()] {
                if let Ok(message) = ToReplaySandbox::read(&any) {
                    prop_assert!(ToReplaySandbox::read(&octets(&message)).is_ok());
                }
            }
        }
    }
}
