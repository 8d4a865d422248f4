//! The aggregator: the one edge of the control plane
