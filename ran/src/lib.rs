//! Emulated gNBs and phones, and the load generator
