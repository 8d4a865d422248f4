//! Trials: inputs that a CPF may have died of are tried elsewhere before another one runs them (DESIGN: "poison").
//!
//! A panic costs one UE ([`Cpf::run`]). An input that aborts the process, overflows its stack or never returns costs the process; and
//! whoever took its UE over and ran it again would follow. So what was handed to a member that was lost, and has no batch, does not
//! run in the next one at once: that one has a *sandbox* do so first, a process of its own that nobody misses, and goes on with its other UEs
//! meanwhile. TrialOutcome are all such inputs, not the first alone: a member answers at the end of its turn, so the first without an answer may be
//! one that did no harm.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::{Checkpoint, Envelope, FlatError, UeId};

use super::Cpf;
use crate::link::{LinkError, read_envelopes, write_envelopes};

/// What one UE would do next, to be tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its number, counted by the member.
    pub id: u64,
    /// Whose.
    pub ue: UeId,
    /// Where the UE rests; `None` if it begins.
    pub state: Option<Checkpoint>,
    /// What it runs from there, in order.
    pub inputs: Vec<Envelope>,
}

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// None of its inputs did any harm.
    Passed,
    /// So many of its inputs did no harm, and the next one ended who ran it.
    CrashedAfter(u32),
}

/// To a sandbox, as octets.
#[derive(Debug)]
pub enum ToReplaySandbox {
    /// The configuration that is in force for the trials to come.
    Configure(Arc<Config>),
    /// Try this, and say so when it did no harm.
    Try(Trial),
}

#[derive(Serialize, Deserialize)]
enum Head {
    Configure,
    Try { id: u64, ue: UeId, state_octets: Option<u32> },
}

impl ToReplaySandbox {
    /// Appends its octets. They may hold keys.
    pub fn write(&self, to: &mut Vec<u8>) {
        let head = |head: &Head, to: &mut Vec<u8>| {
            *to = postcard::to_extend(head, std::mem::take(to)).expect("heads can be written");
        };
        match self {
            Self::Configure(config) => {
                head(&Head::Configure, to);
                to.extend_from_slice(config.to_flat().octets());
            }
            Self::Try(Trial { id, ue, state, inputs }) => {
                let state = state.as_ref().map(Checkpoint::octets);
                let state_octets = state.map(|s| u32::try_from(s.len()).expect("a state is far shorter"));
                head(&Head::Try { id: *id, ue: *ue, state_octets }, to);
                to.extend_from_slice(state.unwrap_or_default());
                write_envelopes(inputs, to);
            }
        }
    }

    /// Reads what [`Self::write`] wrote. Errors: each [`LinkError`].
    pub fn read(octets: &[u8]) -> Result<Self, LinkError> {
        let (head, rest) = postcard::take_from_bytes(octets).map_err(|_| LinkError::Malformed)?;
        let Head::Try { id, ue, state_octets } = head else {
            return Ok(Self::Configure(Arc::new(Config::from_flat(rest)?)));
        };
        let state_end = state_octets.unwrap_or(0) as usize;
        let (state, inputs) = rest.split_at_checked(state_end).ok_or(LinkError::Malformed)?;
        let state = state_octets.map(|_| Checkpoint::from_octets(state)).transpose()?;
        Ok(Self::Try(Trial { id, ue, state, inputs: read_envelopes(inputs)? }))
    }
}

/// A CPF that nobody misses.
#[derive(Default)]
pub struct ReplaySandbox {
    cpf: Option<Cpf>,
}

impl ReplaySandbox {
    /// Does what it is told; the number of a trial that it came out of. What it does otherwise is the point of it. `survived` is told of
    /// each trial that is begun, and how many of its inputs did no harm so far: of those that end it, the next is known by that.
    ///
    /// Errors: each [`FlatError`] of the UE's state, if that cannot be read: it runs nowhere then.
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
    fn who_has_no_configuration_tries_nothing() {
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
