//! Where a switch is not known: no harvest, so that callers go on without.

/// A computation that runs in the stalls of a primary.
pub type Work = Box<dyn FnOnce(&Primary)>;

/// The primary, as its scavengers see it. None exists here.
pub enum Primary {}

impl Primary {
    /// Returns to the primary.
    pub fn resume(&self) {
        match *self {}
    }

    /// Lets the next scavenger run.
    pub fn next(&self) {
        match *self {}
    }
}

/// Scavengers and where each of them stands. None exists here.
pub enum Harvest {}

impl Harvest {
    /// `None`: this processor or system is not supported.
    pub fn new(_: Vec<Work>) -> Option<Self> {
        None
    }

    /// Runs a scavenger for a while.
    pub fn stall(&mut self) {
        match *self {}
    }

    /// Scavengers that have not finished.
    pub fn unfinished(&self) -> usize {
        match *self {}
    }

    /// Scavengers that ended in a panic.
    pub fn failed(&self) -> usize {
        match *self {}
    }

    /// Switches to scavengers so far.
    pub fn switches(&self) -> u64 {
        match *self {}
    }
}
