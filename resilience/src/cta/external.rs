//! The external values that handling an input uses: entropy, and the UDM's answers. All else follows from the CTA's state and the input, so
//! a CTA that gets both can repeat it (see [`crate::cta_replica`]).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use whimbrel_control::UeId;
use whimbrel_control::udm::{Directory, DirectoryOutcome, Subscribers, UdmAnswer, UdmRequest};
use whimbrel_ids::Instant;

use super::{Cta, Entropy, Inspect};

/// External values, in order of use.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ExternalValues {
    seeds: VecDeque<[u8; 16]>,
    answers: VecDeque<UdmAnswer>,
}

/// Where external values come from.
#[derive(Debug, Default)]
pub(crate) enum ExternalSource {
    /// The generator and the subscriber store.
    #[default]
    Live,
    /// The same, and they are recorded for the CTA replica.
    Recorded(ExternalValues),
    /// Those that the primary CTA used.
    Replayed(ExternalValues),
    /// The primary CTA used fewer: the two have diverged.
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
                    [0; 16] // outputs of a diverged replica never leave
                }
            },
            Self::Exhausted => [0; 16],
        }
    }

    pub(super) fn udm(
        &mut self,
        now: Instant,
        ue: UeId,
        request: UdmRequest,
        directory: &mut Directory,
        subscribers: &mut impl Subscribers,
    ) -> Option<DirectoryOutcome> {
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
    /// Replaces the source of external values. Returns the former one.
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
