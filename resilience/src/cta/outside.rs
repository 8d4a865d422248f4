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
pub(crate) struct Taken {
    seeds: VecDeque<[u8; 16]>,
    answers: VecDeque<Answer>,
}

/// Where it is taken from.
#[derive(Debug, Default)]
pub(crate) enum Outside {
    /// The generator and the store.
    #[default]
    Asked,
    /// The same, and it is noted for another that follows.
    Noted(Taken),
    /// What another one took.
    Repeated(Taken),
    /// Another one took less: it did something else with the input.
    Short,
}

impl Outside {
    pub(super) fn draw(&mut self, entropy: &mut impl Entropy) -> [u8; 16] {
        match self {
            Self::Asked => entropy.draw(),
            Self::Noted(taken) => {
                let seed = entropy.draw();
                taken.seeds.push_back(seed);
                seed
            }
            Self::Repeated(taken) => match taken.seeds.pop_front() {
                Some(seed) => seed,
                None => {
                    *self = Self::Short;
                    [0; 16] // nothing of what comes of it leaves
                }
            },
            Self::Short => [0; 16],
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
            Self::Asked => Some(directory.handle(now, ue, request, subscribers)),
            Self::Noted(taken) => {
                let outcome = directory.handle(now, ue, request, subscribers);
                taken.answers.push_back(outcome.answer.clone());
                Some(outcome)
            }
            Self::Repeated(taken) => match taken.answers.pop_front() {
                Some(answer) => Some(directory.follow(ue, &request, answer)),
                None => {
                    *self = Self::Short;
                    None
                }
            },
            Self::Short => None,
        }
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// From now on this is where the rest of the world's part comes from; gives what was there before.
    pub(crate) fn outside(&mut self, outside: Outside) -> Outside {
        std::mem::replace(&mut self.outside, outside)
    }
}

impl Taken {
    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.seeds.is_empty() && self.answers.is_empty()
    }
}
