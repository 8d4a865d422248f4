//! Procedure 23: overload stop.

message! {
    /// OVERLOAD STOP: TS 38.413 §9.2.6.15.
    pub struct OverloadStop {
    }
}
