//! The whimbrel program
