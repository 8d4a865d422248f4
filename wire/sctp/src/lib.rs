//! A sans-I/O SCTP endpoint (RFC 9260)
