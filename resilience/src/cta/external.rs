//! What the handling of an input takes from outside: entropy, and the UDM's answers. All else is decided by the CTA's
//! state and the input, so whoever is told both can repeat it (see [`crate::cta_replica`]).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use whimbrel_control::UeId;
use whimbrel_control::udm::{Answer, Directory, Outcome, Request, Subscribers};
use whimbrel_ids::Instant;

use super::{Cta, Entropy, Inspect};

/// What was taken, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ExternalValues {
    seeds: VecDeque<[u8; 16]>,
    answers: VecDeque<Answer>,
}

/// Where it is taken from.
#[derive(Debug, Default)]
pub(crate) enum ExternalSource {
    /// The generator and the store.
    #[default]
    Live,
    /// The same, and it is noted for another that follows.
    Recorded(ExternalValues),
    /// What another one took.
    Replayed(ExternalValues),
    /// Another one took less: it did something else with the input.
    Exhausted,
}

impl ExternalSource {
    pub(super) fn draw(&mut self, entropy: &mut impl Entropy) -> [u8; 16] {
        match self {
            Self::Live => entropy.draw(),
            Self::Recorded(taken) => {
                let seed = entropy.draw();
                taken.seeds.push_back(seed);
                seed
            }
            Self::Replayed(taken) => match taken.seeds.pop_front() {
                Some(seed) => seed,
                None => {
                    *self = Self::Exhausted;
                    [0; 16] // nothing of what comes of it leaves
                }
            },
            Self::Exhausted => [0; 16],
        }
    }

    pub(super) fn udm(
        &mut self,
        now: Instant,
        ue: UeId,
        request: Request,
        directory: &mut Directory,
        subscribers: &mut impl Subscribers,
    ) -> Option<Outcome> {
        match self {
            Self::Live => Some(directory.handle(now, ue, request, subscribers)),
            Self::Recorded(taken) => {
                let outcome = directory.handle(now, ue, request, subscribers);
                taken.answers.push_back(outcome.answer.clone());
                Some(outcome)
            }
            Self::Replayed(taken) => match taken.answers.pop_front() {
                Some(answer) => Some(directory.follow(ue, &request, answer)),
                None => {
                    *self = Self::Exhausted;
                    None
                }
            },
            Self::Exhausted => None,
        }
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// From now on this is where the rest of the world's part comes from; gives what was there before.
    pub(crate) fn outside(&mut self, outside: ExternalSource) -> ExternalSource {
        std::mem::replace(&mut self.outside, outside)
    }
}

impl ExternalValues {
    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.seeds.is_empty() && self.answers.is_empty()
    }
}
