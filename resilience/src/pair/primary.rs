//! The CTA that serves.

use crate::membership::{Claim, ClaimError, CtaInstance, Home};

/// What the one that serves is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryAction {
    /// Nothing leaves from now on that the CTA replica does not hold.
    HoldOutputs,
    /// Everything leaves: nobody can take over.
    ReleaseOutputs,
    /// The link to the other one is to end.
    CloseLink,
    /// Etcd is to be asked.
    Claim(Claim),
    /// That one can take over at any moment from now on.
    ReplicaReady(CtaInstance),
    /// Nobody can.
    NoReplica,
    /// The other one serves: this one does nothing more.
    Stop,
}

/// The CTA that serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrimaryRole {
    me: CtaInstance,
    term: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Nobody follows.
    Alone,
    /// A snapshot is on its way. Nothing waits for whom it goes to.
    Copied(CtaInstance),
    /// It has the snapshot; when it holds this input, it can take over at any moment.
    CatchingUp(CtaInstance, u64),
    /// It can, and etcd is to say that it may.
    Named(CtaInstance),
    /// It may.
    Paired(CtaInstance),
    /// It is lost, or etcd may have been told that it may take over. Nothing leaves until etcd has said that this one goes on alone.
    Widowed,
    /// The other one serves.
    Replaced,
}

impl PrimaryRole {
    /// The one that this record names.
    pub fn new(home: &Home) -> Self {
        Self { me: home.primary, term: home.term, state: State::Alone }
    }

    /// Which one it is.
    pub fn me(&self) -> CtaInstance {
        self.me
    }

    /// The home's term.
    pub fn term(&self) -> u32 {
        self.term
    }

    /// Whom a snapshot goes to, who gets ready, or who CTA replicas.
    pub fn other(&self) -> Option<CtaInstance> {
        match self.state {
            State::Copied(other)
            | State::CatchingUp(other, _)
            | State::Named(other)
            | State::Paired(other) => Some(other),
            State::Alone | State::Widowed | State::Replaced => None,
        }
    }

    /// Whether a snapshot is on its way.
    pub fn copies(&self) -> bool {
        matches!(self.state, State::Copied(_))
    }

    /// Whether somebody can go on at once, if this one stops.
    pub fn has_cta_replica(&self) -> bool {
        matches!(self.state, State::Paired(_))
    }

    /// Whether it waits for etcd to say that it goes on alone.
    pub fn is_replica_lost(&self) -> bool {
        self.state == State::Widowed
    }

    /// Another CTA wants to follow; `listed`: etcd lists it in that life. Whether it is to get a snapshot. One that is not calls
    /// again.
    pub fn follows(&mut self, other: CtaInstance, listed: bool) -> bool {
        let begins = self.state == State::Alone && listed;
        if begins {
            self.state = State::Copied(other);
        }
        begins
    }

    /// The other one holds the inputs up to this one; `last`: the last that was taken.
    pub fn held(&mut self, number: u64, last: u64) -> Vec<PrimaryAction> {
        let mut duties = Vec::new();
        if let State::Copied(other) = self.state {
            self.state = State::CatchingUp(other, last);
            duties.push(PrimaryAction::HoldOutputs);
        }
        if let State::CatchingUp(other, until) = self.state
            && number >= until
        {
            self.state = State::Named(other);
            duties.push(PrimaryAction::Claim(Claim::Pair(other)));
        }
        duties
    }

    /// The link to the other one has ended.
    pub fn lost(&mut self) -> Vec<PrimaryAction> {
        match self.state {
            State::Alone | State::Widowed | State::Replaced => Vec::new(),
            // Nobody was told that it may take over.
            State::Copied(_) | State::CatchingUp(..) => {
                self.state = State::Alone;
                vec![PrimaryAction::ReleaseOutputs]
            }
            State::Named(_) | State::Paired(_) => self.widowed(),
        }
    }

    /// Whoever may have been named must be named no more before anything leaves.
    fn widowed(&mut self) -> Vec<PrimaryAction> {
        self.state = State::Widowed;
        vec![PrimaryAction::Claim(Claim::Alone)]
    }

    /// Etcd has answered a claim.
    pub fn claimed(&mut self, claim: Claim, outcome: Result<Home, ClaimError>) -> Vec<PrimaryAction> {
        match (claim, outcome, self.state) {
            (Claim::Pair(_), Ok(home), State::Named(other)) => {
                self.term = home.term;
                self.state = State::Paired(other);
                vec![PrimaryAction::ReplicaReady(other)]
            }
            (Claim::Pair(_), Err(ClaimError::NoAnswer), State::Named(_)) => vec![PrimaryAction::Claim(claim)],
            // An earlier try may still come into effect: a record that says so is not enough, it has to be written anew.
            (Claim::Pair(_), Err(_), State::Named(_)) => {
                let mut duties = vec![PrimaryAction::CloseLink];
                duties.extend(self.widowed());
                duties
            }
            (Claim::Alone, Ok(home), State::Widowed) => {
                self.term = home.term;
                self.state = State::Alone;
                vec![PrimaryAction::ReleaseOutputs, PrimaryAction::NoReplica]
            }
            (Claim::Alone, Err(_), State::Widowed) => vec![PrimaryAction::Claim(claim)],
            _ => Vec::new(),
        }
    }

    /// The record as it is known.
    pub fn home(&mut self, home: Option<&Home>) -> Vec<PrimaryAction> {
        let replaced = home.is_some_and(|home| home.primary != self.me && home.term > self.term);
        if !replaced || self.state == State::Replaced {
            return Vec::new();
        }
        self.state = State::Replaced;
        vec![PrimaryAction::Stop]
    }
}
