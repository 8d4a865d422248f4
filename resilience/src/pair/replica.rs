//! The CTA that is not the primary.

use crate::membership::{ClaimError, CtaHome, CtaInstance, HomeClaim};

/// An action of the CTA that is not the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaAction {
    /// Connect to the primary.
    Connect(CtaInstance),
    /// Make this claim at etcd.
    Claim(HomeClaim),
    /// Register at etcd under a new incarnation: the record names this CTA as replica, but it holds no state.
    Rejoin,
    /// Drop the replicated state and close the link to the primary.
    Discard,
    /// This CTA is the primary, as the record says.
    Serve(CtaHome),
}

/// The CTA that does not serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaRole {
    state: PairReplicaState,
    /// A claim to become primary has no answer yet.
    asked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum PairReplicaState {
    /// It does not know the primary.
    #[default]
    Looking,
    /// It connects to the primary.
    Calling(CtaInstance),
    /// It receives the primary's snapshot (`whole` when complete) and records.
    Following { whole: bool },
    /// The primary is lost, and the claim to replace it is under way.
    Promoting,
    /// It is the primary.
    Serves,
}

impl ReplicaRole {
    /// Whether it has to look for the primary again after a while.
    pub fn is_looking(&self) -> bool {
        self.state == PairReplicaState::Looking && !self.asked
    }

    /// Whether the claim to replace the primary is under way.
    pub fn is_promoting(&self) -> bool {
        self.state == PairReplicaState::Promoting
    }

    /// Looks for the primary.
    pub fn look(&mut self, me: CtaInstance, home: Option<&CtaHome>) -> Option<ReplicaAction> {
        if !self.is_looking() {
            return None;
        }
        Some(match home {
            // It was named as replica and has lost its state: the former primary cannot come back while a replica is named.
            Some(home) if home.cta_replica == Some(me) => ReplicaAction::Rejoin,
            Some(home) if home.primary.cta != me.cta => {
                self.state = PairReplicaState::Calling(home.primary);
                ReplicaAction::Connect(home.primary)
            }
            _ => self.claim(HomeClaim::Found),
        })
    }

    fn claim(&mut self, claim: HomeClaim) -> ReplicaAction {
        self.asked = true;
        ReplicaAction::Claim(claim)
    }

    /// The primary sends its snapshot. Returns whether that was expected.
    pub fn begun(&mut self) -> bool {
        let called = matches!(self.state, PairReplicaState::Calling(_));
        if called {
            self.state = PairReplicaState::Following { whole: false };
        }
        called
    }

    /// The snapshot is complete.
    pub fn whole(&mut self) {
        if let PairReplicaState::Following { whole } = &mut self.state {
            *whole = true;
        }
    }

    /// The link to the primary has ended, or it does not answer. Etcd decides whether this CTA replaces it: not if it never became the
    /// replica, or if the primary lives and was faster.
    pub fn lost(&mut self) -> Option<ReplicaAction> {
        if self.state != (PairReplicaState::Following { whole: true }) {
            return self.give_up();
        }
        self.state = PairReplicaState::Promoting;
        Some(self.claim(HomeClaim::Promote))
    }

    /// Drops the replicated state and starts again.
    pub fn give_up(&mut self) -> Option<ReplicaAction> {
        if matches!(self.state, PairReplicaState::Looking | PairReplicaState::Serves) {
            return None;
        }
        self.state = PairReplicaState::Looking;
        Some(ReplicaAction::Discard)
    }

    /// Etcd has answered a claim.
    pub fn claimed(
        &mut self,
        claim: HomeClaim,
        outcome: Result<CtaHome, ClaimError>,
    ) -> Option<ReplicaAction> {
        self.asked &= !matches!(claim, HomeClaim::Found | HomeClaim::Promote);
        match (claim, outcome, self.state) {
            (HomeClaim::Found, Ok(home), PairReplicaState::Looking)
            | (HomeClaim::Promote, Ok(home), PairReplicaState::Promoting) => {
                self.state = PairReplicaState::Serves;
                Some(ReplicaAction::Serve(home))
            }
            (HomeClaim::Promote, Err(ClaimError::NoAnswer), PairReplicaState::Promoting) => {
                Some(self.claim(claim))
            }
            (HomeClaim::Promote, Err(_), PairReplicaState::Promoting) => self.give_up(),
            _ => None,
        }
    }
}
