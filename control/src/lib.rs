//! The control plane's procedures (TS 23.502) as deterministic machines, one per phone
