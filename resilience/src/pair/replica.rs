//! The CTA that does not serve.

use crate::membership::{Claim, ClaimError, CtaInstance, Home};

/// What the one that does not serve is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaAction {
    /// The CTA that serves is to be called.
    Connect(CtaInstance),
    /// Etcd is to be asked.
    Claim(Claim),
    /// A new life is to begin at etcd: the record names this one as the CTA replica, and it holds nothing.
    Rejoin,
    /// What was heard means nothing any more, and the link to the one that serves is to end.
    Discard,
    /// This one serves, as the record says.
    Serve(Home),
}

/// The CTA that does not serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaRole {
    state: State,
    /// It has asked to serve, and there is no answer yet.
    asked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// Who serves?
    #[default]
    Looking,
    /// That one is called.
    Calling(CtaInstance),
    /// That one is followed, and its snapshot is on its way, or whole.
    Following { whole: bool },
    /// It is lost, and etcd is asked for its place.
    Promoting,
    /// This one serves.
    Serves,
}

impl ReplicaRole {
    /// Whether it is to look who serves, after a while.
    pub fn is_looking(&self) -> bool {
        self.state == State::Looking && !self.asked
    }

    /// Whether etcd is asked for the place of the one that served.
    pub fn is_promoting(&self) -> bool {
        self.state == State::Promoting
    }

    /// Looks who serves.
    pub fn look(&mut self, me: CtaInstance, home: Option<&Home>) -> Option<ReplicaAction> {
        if !self.is_looking() {
            return None;
        }
        Some(match home {
            // It was named, and could not keep what it had: who served may not come back before nobody is named.
            Some(home) if home.cta_replica == Some(me) => ReplicaAction::Rejoin,
            Some(home) if home.primary.cta != me.cta => {
                self.state = State::Calling(home.primary);
                ReplicaAction::Connect(home.primary)
            }
            _ => self.claim(Claim::Found),
        })
    }

    fn claim(&mut self, claim: Claim) -> ReplicaAction {
        self.asked = true;
        ReplicaAction::Claim(claim)
    }

    /// The one that serves was reached and sends its snapshot. Whether that was asked for.
    pub fn begun(&mut self) -> bool {
        let called = matches!(self.state, State::Calling(_));
        if called {
            self.state = State::Following { whole: false };
        }
        called
    }

    /// The snapshot is whole.
    pub fn whole(&mut self) {
        if let State::Following { whole } = &mut self.state {
            *whole = true;
        }
    }

    /// The link to the one that serves has ended, or it does not answer. Whether this one may take its place is for etcd to say: it may
    /// not, if it never became the CTA replica, or if the other one lives and was faster.
    pub fn lost(&mut self) -> Option<ReplicaAction> {
        if self.state != (State::Following { whole: true }) {
            return self.give_up();
        }
        self.state = State::Promoting;
        Some(self.claim(Claim::Promote))
    }

    /// What was heard is of no use: it is begun anew.
    pub fn give_up(&mut self) -> Option<ReplicaAction> {
        if matches!(self.state, State::Looking | State::Serves) {
            return None;
        }
        self.state = State::Looking;
        Some(ReplicaAction::Discard)
    }

    /// Etcd has answered a claim.
    pub fn claimed(&mut self, claim: Claim, outcome: Result<Home, ClaimError>) -> Option<ReplicaAction> {
        self.asked &= !matches!(claim, Claim::Found | Claim::Promote);
        match (claim, outcome, self.state) {
            (Claim::Found, Ok(home), State::Looking) | (Claim::Promote, Ok(home), State::Promoting) => {
                self.state = State::Serves;
                Some(ReplicaAction::Serve(home))
            }
            (Claim::Promote, Err(ClaimError::NoAnswer), State::Promoting) => Some(self.claim(claim)),
            (Claim::Promote, Err(_), State::Promoting) => self.give_up(),
            _ => None,
        }
    }
}
