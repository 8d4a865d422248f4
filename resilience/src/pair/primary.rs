//! The primary CTA.

use crate::membership::{ClaimError, CtaHome, CtaInstance, HomeClaim};

/// An action of the primary CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryAction {
    /// From now on, outputs leave only when the replica holds their input.
    HoldOutputs,
    /// All outputs leave: no replica can take over.
    ReleaseOutputs,
    /// Close the link to the replica.
    CloseLink,
    /// Make this claim at etcd.
    Claim(HomeClaim),
    /// The replica can take over at any moment from now on.
    ReplicaReady(CtaInstance),
    /// There is no replica that can take over.
    NoReplica,
    /// The other CTA is primary: this one stops.
    Stop,
}

/// The CTA that serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrimaryRole {
    me: CtaInstance,
    term: u32,
    state: PairPrimaryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PairPrimaryState {
    /// There is no replica.
    Alone,
    /// A snapshot is on its way. No output waits for its receiver.
    Copied(CtaInstance),
    /// The replica has the snapshot; when it holds this input, it can take over.
    CatchingUp(CtaInstance, u64),
    /// It can take over, and the claim that names it at etcd is under way.
    Named(CtaInstance),
    /// Etcd names it.
    Paired(CtaInstance),
    /// The replica is lost, but etcd may name it. Nothing leaves until etcd has granted that this CTA continues alone.
    ReplicaLost,
    /// The other CTA is primary.
    Replaced,
}

impl PrimaryRole {
    /// The primary that this record names.
    pub fn new(home: &CtaHome) -> Self {
        Self { me: home.primary, term: home.term, state: PairPrimaryState::Alone }
    }

    /// The CTA of this process.
    pub fn me(&self) -> CtaInstance {
        self.me
    }

    /// The home's term.
    pub fn term(&self) -> u32 {
        self.term
    }

    /// The replica, or the CTA that is becoming one.
    pub fn other(&self) -> Option<CtaInstance> {
        match self.state {
            PairPrimaryState::Copied(other)
            | PairPrimaryState::CatchingUp(other, _)
            | PairPrimaryState::Named(other)
            | PairPrimaryState::Paired(other) => Some(other),
            PairPrimaryState::Alone | PairPrimaryState::ReplicaLost | PairPrimaryState::Replaced => None,
        }
    }

    /// Whether a snapshot is on its way.
    pub fn copies(&self) -> bool {
        matches!(self.state, PairPrimaryState::Copied(_))
    }

    /// Whether a replica can take over at once if this CTA stops.
    pub fn has_cta_replica(&self) -> bool {
        matches!(self.state, PairPrimaryState::Paired(_))
    }

    /// Whether it waits for etcd to grant that it continues alone.
    pub fn is_replica_lost(&self) -> bool {
        self.state == PairPrimaryState::ReplicaLost
    }

    /// Another CTA asks to become the replica; `listed`: etcd lists this incarnation. Returns whether it gets a snapshot; if not, it asks
    /// again later.
    pub fn follows(&mut self, other: CtaInstance, listed: bool) -> bool {
        let begins = self.state == PairPrimaryState::Alone && listed;
        if begins {
            self.state = PairPrimaryState::Copied(other);
        }
        begins
    }

    /// The replica holds the inputs up to this one; `last`: the last input of this CTA.
    pub fn held(&mut self, number: u64, last: u64) -> Vec<PrimaryAction> {
        let mut actions = Vec::new();
        if let PairPrimaryState::Copied(other) = self.state {
            self.state = PairPrimaryState::CatchingUp(other, last);
            actions.push(PrimaryAction::HoldOutputs);
        }
        if let PairPrimaryState::CatchingUp(other, until) = self.state
            && number >= until
        {
            self.state = PairPrimaryState::Named(other);
            actions.push(PrimaryAction::Claim(HomeClaim::Pair(other)));
        }
        actions
    }

    /// The link to the replica has ended.
    pub fn lost(&mut self) -> Vec<PrimaryAction> {
        match self.state {
            PairPrimaryState::Alone | PairPrimaryState::ReplicaLost | PairPrimaryState::Replaced => {
                Vec::new()
            }
            // It was never named at etcd.
            PairPrimaryState::Copied(_) | PairPrimaryState::CatchingUp(..) => {
                self.state = PairPrimaryState::Alone;
                vec![PrimaryAction::ReleaseOutputs]
            }
            PairPrimaryState::Named(_) | PairPrimaryState::Paired(_) => self.replica_lost(),
        }
    }

    /// A replica that etcd may name must be removed there before any output leaves.
    fn replica_lost(&mut self) -> Vec<PrimaryAction> {
        self.state = PairPrimaryState::ReplicaLost;
        vec![PrimaryAction::Claim(HomeClaim::Alone)]
    }

    /// Etcd has answered a claim.
    pub fn claimed(&mut self, claim: HomeClaim, outcome: Result<CtaHome, ClaimError>) -> Vec<PrimaryAction> {
        match (claim, outcome, self.state) {
            (HomeClaim::Pair(_), Ok(home), PairPrimaryState::Named(other)) => {
                self.term = home.term;
                self.state = PairPrimaryState::Paired(other);
                vec![PrimaryAction::ReplicaReady(other)]
            }
            (HomeClaim::Pair(_), Err(ClaimError::NoAnswer), PairPrimaryState::Named(_)) => {
                vec![PrimaryAction::Claim(claim)]
            }
            // An earlier try may still take effect, so the record has to be written again even if it reads as claimed.
            (HomeClaim::Pair(_), Err(_), PairPrimaryState::Named(_)) => {
                let mut actions = vec![PrimaryAction::CloseLink];
                actions.extend(self.replica_lost());
                actions
            }
            (HomeClaim::Alone, Ok(home), PairPrimaryState::ReplicaLost) => {
                self.term = home.term;
                self.state = PairPrimaryState::Alone;
                vec![PrimaryAction::ReleaseOutputs, PrimaryAction::NoReplica]
            }
            (HomeClaim::Alone, Err(_), PairPrimaryState::ReplicaLost) => vec![PrimaryAction::Claim(claim)],
            _ => Vec::new(),
        }
    }

    /// The home's record as last known.
    pub fn home(&mut self, home: Option<&CtaHome>) -> Vec<PrimaryAction> {
        let replaced = home.is_some_and(|home| home.primary != self.me && home.term > self.term);
        if !replaced || self.state == PairPrimaryState::Replaced {
            return Vec::new();
        }
        self.state = PairPrimaryState::Replaced;
        vec![PrimaryAction::Stop]
    }
}
