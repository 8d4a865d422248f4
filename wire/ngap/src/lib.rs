//! NGAP messages (TS 38.413) in aligned PER
