//! Randomness of the system, drawn in pages so that an input costs no system call.

use rustix::rand::{GetRandomFlags, getrandom};

/// Octets drawn at once.
const PAGE: usize = 4096;

/// Unpredictable octets of the operating system.
pub struct SystemEntropy {
    page: Box<[u8; PAGE]>,
    used: usize,
}

impl SystemEntropy {
    /// Errors: the system gives none.
    pub fn new() -> Result<Self, String> {
        let mut entropy = Self { page: Box::new([0; PAGE]), used: PAGE };
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
        self.octets()
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
