//! Randomness of the system, drawn in pages so that an input costs no system call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::rand::{GetRandomFlags, getrandom};

/// Octets drawn at once.
const PAGE: usize = 4096;

/// Unpredictable octets of the operating system.
pub struct SystemEntropy {
    page: Box<[u8; PAGE]>,
    used: usize,
    /// Where the draws of the control plane are noted, or come from.
    tape: Option<DrawTape>,
}

impl SystemEntropy {
    /// Errors: the system gives none.
    pub fn new() -> Result<Self, String> {
        let mut entropy = Self { page: Box::new([0; PAGE]), used: PAGE, tape: None };
        entropy
            .refill()
            .map_err(|e| format!("the system gives no random octets, without which no key is safe: {e}"))?;
        Ok(entropy)
    }

    /// `N` fresh octets, forgotten here.
    pub fn octets<const N: usize>(&mut self) -> [u8; N] {
        if self.used + N > PAGE {
            // getrandom(2) cannot fail once it gave octets, which `new` has seen.
            assert!(self.refill().is_ok(), "the system gave random octets before and gives none now");
        }
        let mut out = [0; N];
        let drawn = &mut self.page[self.used..self.used + N];
        out.copy_from_slice(drawn);
        drawn.fill(0);
        self.used += N;
        out
    }

    /// Has the draws of the control plane noted on a tape, or taken from it.
    pub(crate) fn put_on(&mut self, tape: DrawTape) {
        self.tape = Some(tape);
    }

    fn refill(&mut self) -> rustix::io::Result<()> {
        let mut filled = 0;
        while filled < PAGE {
            match getrandom(&mut self.page[filled..], GetRandomFlags::empty()) {
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        self.used = 0;
        Ok(())
    }
}

impl whimbrel_resilience::Entropy for SystemEntropy {
    fn draw(&mut self) -> [u8; 16] {
        match self.tape.clone() {
            Some(tape) => tape.draw(self),
            None => self.octets(),
        }
    }
}

/// The draws of a recorded core, or of one to which a recording is replayed.
#[derive(Clone, Default)]
pub(crate) struct DrawTape {
    draws: Arc<Mutex<VecDeque<[u8; 16]>>>,
    /// Draws come from the tape alone.
    is_recording: bool,
}

impl DrawTape {
    /// A tape that gives what [`Self::give`] has put on it.
    #[cfg(test)]
    pub(crate) fn of_recording() -> Self {
        Self { is_recording: true, ..Self::default() }
    }

    /// The draws since the last call.
    pub(crate) fn take(&self) -> VecDeque<[u8; 16]> {
        std::mem::take(&mut *self.draws.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts draws on it.
    #[cfg(test)]
    pub(crate) fn give(&self, draws: Vec<[u8; 16]>) {
        self.draws.lock().unwrap().extend(draws);
    }

    fn draw(&self, entropy: &mut SystemEntropy) -> [u8; 16] {
        let mut draws = self.draws.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_recording {
            return draws.pop_front().expect("the recording has no further draw for this input");
        }
        let fresh = entropy.octets();
        draws.push_back(fresh);
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_octets_come_twice() {
        let mut entropy = SystemEntropy::new().unwrap();
        let drawn: std::collections::BTreeSet<[u8; 16]> = (0..1000).map(|_| entropy.octets()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
