//! Packet sources and sinks of the user plane: UDP sockets and TUN devices
