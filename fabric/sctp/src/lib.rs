//! SCTP on sockets: raw IP, UDP encapsulation, or the kernel's own
