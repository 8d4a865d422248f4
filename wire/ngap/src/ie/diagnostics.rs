//! Criticality, and diagnostics of it (TS 38.413 §9.3.1.3).

use crate::aper::codec::{Int, List};

sequence! {
    /// Criticality Diagnostics: which message, or which of its IEs, was not comprehended.
    pub struct CriticalityDiagnostics {
        /// The procedure, if it is not the one that carries the diagnostics.
        opt procedure_code: u8 as Int<0, 255>,
        /// Which message of the procedure.
        opt triggering_message: TriggeringMessage,
        /// The criticality of the procedure.
        opt procedure_criticality: Criticality,
        /// The IEs that were missing or not understood.
        lst ies: Vec<IeDiagnostic> as List<1, 256>,
    }
}

enumerated! {
    /// Which message of an elementary procedure.
    pub enum TriggeringMessage {
        InitiatingMessage "initiating-message", SuccessfulOutcome "successful-outcome",
        UnsuccessfulOutcome "unsuccessful-outcome",
    }
}

enumerated! {
    /// What a sender wants of a receiver that does not comprehend an element (TS 38.413 §10.3.2).
    pub enum Criticality { Reject "reject", Ignore "ignore", Notify "notify" }
}

sequence! {
    /// One IE that was missing or not understood.
    pub struct IeDiagnostic {
        /// The criticality that applied to it.
        req ie_criticality: Criticality,
        /// Its protocol IE id.
        req ie_id: u16 as Int<0, 65535>,
        /// What was wrong with it.
        req type_of_error: TypeOfError,
    }
}

enumerated! {
    /// What was wrong with an IE.
    pub enum TypeOfError { NotUnderstood "not-understood", Missing "missing" } + {}
}
