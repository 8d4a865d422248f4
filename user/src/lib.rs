//! The user plane function: PFCP sessions and the packet pipeline
