//! PFCP messages (TS 29.244)
