//! The simulated network: virtual time, seeds and faults
