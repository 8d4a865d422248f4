//! The CTA that serves.

use crate::membership::{Claim, ClaimError, Home, Place};

/// What the one that serves is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing leaves from now on that the CTA replica does not hold.
    Wait,
    /// Everything leaves: nobody can take over.
    Open,
    /// The link to the other one is to end.
    Part,
    /// Etcd is to be asked.
    Claim(Claim),
    /// That one can take over at any moment from now on.
    Replicated(Place),
    /// Nobody can.
    Unreplicated,
    /// The other one serves: this one does nothing more.
    Stop,
}

/// The CTA that serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Serving {
    me: Place,
    term: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Nobody follows.
    Alone,
    /// A snapshot is on its way. Nothing waits for whom it goes to.
    Copied(Place),
    /// It has the snapshot; when it holds this input, it can take over at any moment.
    CatchingUp(Place, u64),
    /// It can, and etcd is to say that it may.
    Named(Place),
    /// It may.
    Paired(Place),
    /// It is lost, or etcd may have been told that it may take over. Nothing leaves until etcd has said that this one goes on alone.
    Widowed,
    /// The other one serves.
    Replaced,
}

impl Serving {
    /// The one that this record names.
    pub fn new(home: &Home) -> Self {
        Self { me: home.active, term: home.term, state: State::Alone }
    }

    /// Which one it is.
    pub fn me(&self) -> Place {
        self.me
    }

    /// The home's term.
    pub fn term(&self) -> u32 {
        self.term
    }

    /// Whom a snapshot goes to, who gets ready, or who CTA replicas.
    pub fn other(&self) -> Option<Place> {
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
    pub fn is_widowed(&self) -> bool {
        self.state == State::Widowed
    }

    /// Another CTA wants to follow; `listed`: etcd lists it in that life. Whether it is to get a snapshot. One that is not calls
    /// again.
    pub fn follows(&mut self, other: Place, listed: bool) -> bool {
        let begins = self.state == State::Alone && listed;
        if begins {
            self.state = State::Copied(other);
        }
        begins
    }

    /// The other one holds the inputs up to this one; `last`: the last that was taken.
    pub fn held(&mut self, number: u64, last: u64) -> Vec<Duty> {
        let mut duties = Vec::new();
        if let State::Copied(other) = self.state {
            self.state = State::CatchingUp(other, last);
            duties.push(Duty::Wait);
        }
        if let State::CatchingUp(other, until) = self.state
            && number >= until
        {
            self.state = State::Named(other);
            duties.push(Duty::Claim(Claim::Pair(other)));
        }
        duties
    }

    /// The link to the other one has ended.
    pub fn lost(&mut self) -> Vec<Duty> {
        match self.state {
            State::Alone | State::Widowed | State::Replaced => Vec::new(),
            // Nobody was told that it may take over.
            State::Copied(_) | State::CatchingUp(..) => {
                self.state = State::Alone;
                vec![Duty::Open]
            }
            State::Named(_) | State::Paired(_) => self.widowed(),
        }
    }

    /// Whoever may have been named must be named no more before anything leaves.
    fn widowed(&mut self) -> Vec<Duty> {
        self.state = State::Widowed;
        vec![Duty::Claim(Claim::Alone)]
    }

    /// Etcd has answered a claim.
    pub fn claimed(&mut self, claim: Claim, outcome: Result<Home, ClaimError>) -> Vec<Duty> {
        match (claim, outcome, self.state) {
            (Claim::Pair(_), Ok(home), State::Named(other)) => {
                self.term = home.term;
                self.state = State::Paired(other);
                vec![Duty::Replicated(other)]
            }
            (Claim::Pair(_), Err(ClaimError::NoAnswer), State::Named(_)) => vec![Duty::Claim(claim)],
            // An earlier try may still come into effect: a record that says so is not enough, it has to be written anew.
            (Claim::Pair(_), Err(_), State::Named(_)) => {
                let mut duties = vec![Duty::Part];
                duties.extend(self.widowed());
                duties
            }
            (Claim::Alone, Ok(home), State::Widowed) => {
                self.term = home.term;
                self.state = State::Alone;
                vec![Duty::Open, Duty::Unreplicated]
            }
            (Claim::Alone, Err(_), State::Widowed) => vec![Duty::Claim(claim)],
            _ => Vec::new(),
        }
    }

    /// The record as it is known.
    pub fn home(&mut self, home: Option<&Home>) -> Vec<Duty> {
        let replaced = home.is_some_and(|home| home.active != self.me && home.term > self.term);
        if !replaced || self.state == State::Replaced {
            return Vec::new();
        }
        self.state = State::Replaced;
        vec![Duty::Stop]
    }
}
