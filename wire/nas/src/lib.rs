//! NAS messages of the 5G system (TS 24.501)
