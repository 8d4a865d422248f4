//! Every bound of the user plane, with where its number comes from.

use std::time::Duration;

/// Sessions of one UPF at most: the index bits that a TEID may have.
pub const SESSIONS_MAX: u32 = 1 << TEID_INDEX_BITS_MAX;
/// Bits of what a TEID stands for that are the session's index, at least; the others are its tag, which counts: 4,096 names an index.
pub const TEID_INDEX_BITS: u32 = 20;
/// The same in a UPF of as many sessions as there can be: sixteen million, with 256 names each.
pub const TEID_INDEX_BITS_MAX: u32 = 24;
/// Local tunnels of one session: N3, N9, a forwarding tunnel of a handover, and one spare.
pub const TUNNELS_PER_SESSION_MAX: usize = 4;
/// PDRs, FARs, QERs or URRs of one session: a UE has at most 64 QoS flows (6 bits of QFI), of two
/// directions each.
pub const RULES_PER_SESSION_MAX: usize = 128;
/// Filters of one PDR: TS 24.501 §9.11.4.13 lets one QoS rule have 15 packet filters.
pub const FILTERS_PER_PDR_MAX: usize = 16;
/// QERs of one PDR: its flow's, its session's, and two spare for operators.
pub const QERS_PER_PDR_MAX: usize = 4;
/// URRs of one PDR: online and offline charging, monitoring, and one spare.
pub const URRS_PER_PDR_MAX: usize = 4;
/// Applications that one UPF knows: an operator's, and those that partners have provisioned at its SMF.
pub const APPLICATIONS_MAX: usize = 256;
/// Flow descriptions of one application: a large provider's networks.
pub const APPLICATION_FLOWS_MAX: usize = 512;
/// Names of one application.
pub const APPLICATION_NAMES_MAX: usize = 64;
/// Applications that the rules of one session name: a packet may have to be asked of each.
pub const APPLICATIONS_PER_SESSION_MAX: usize = 16;
/// Addresses that one session knows by name.
pub const NAMED_ADDRESSES_MAX: usize = 128;
/// Flows that one session knows by name: those of a few dozen pages.
pub const NAMED_FLOWS_MAX: usize = 256;
/// Both, of all sessions: some fifty megabytes.
pub const NAMES_KNOWN_MAX: u64 = 524_288;
/// Questions of one session that await their answers.
pub const QUESTIONS_MAX: usize = 16;
/// Questions, answers and greetings that are read for one session in a second: a busy browser's, and a thousandth of a core.
pub const NAMES_READ_PER_SECOND_MAX: u32 = 100;
/// Sessions that are given the changed descriptions of an application in one call.
pub const RENEWED_PER_TICK_MAX: usize = 64;
/// Port ranges of one filter. RFC 6733 §4.3.1 sets none; eight cover what PCFs are known to send.
pub const PORT_RANGES_MAX: usize = 8;
/// Addresses, or IPv6 prefixes, of one pool: as many as there can be sessions.
pub const POOL_ADDRESSES_MAX: u32 = SESSIONS_MAX;
/// Pools of one data network and family: an operator's address plan, not a list of hosts.
pub const POOLS_PER_NETWORK_MAX: usize = 64;
/// Data networks of one UPF: one TUN device each.
pub const DATA_NETWORKS_MAX: usize = 64;
/// Associations with SMFs: a region's SMF sets, generously.
pub const ASSOCIATIONS_MAX: usize = 256;
/// Requests for an association that another SMF has, while that one is asked: a restarted SMF and some that are in the wrong.
pub const PENDING_SET_UPS_PER_ASSOCIATION_MAX: usize = 4;
/// The same of all associations: a fourth of them restart at once.
pub const PENDING_SET_UPS_MAX: usize = ASSOCIATIONS_MAX / 4;
/// Answers kept for retransmitted requests. A peer repeats for N1 x T1 = 9 s; at 1,000 requests a second
/// that is 9,000.
pub const REPLIES_MAX: usize = 16_384;
/// Requests of ours that await an answer: a report per session that pages at once, bounded well below all
/// sessions.
pub const REQUESTS_MAX: usize = 65_536;
/// Reports to one SMF that await answers: one that does not answer leaves as much to the others.
pub const REPORTS_PER_ASSOCIATION_MAX: usize = REQUESTS_MAX / 2;
/// Reports that are kept for one SMF which is silent: if all SMFs are, half of the room is left.
pub const REPORTS_KEPT_MAX: usize = REQUESTS_MAX / 2 / ASSOCIATIONS_MAX;
/// Requests of SMFs that await figures of the packet pipeline: as many as a burst of deletions in one second.
pub const WAITING_MAX: usize = 65_536;
/// Packets buffered for one UE, as far as the configuration may go: 10,000 a second through 300 ms.
pub const HELD_PER_SESSION_MAX: u16 = 3_000;
/// Packets that one UE may have buffered however many others have: 64 as most BARs suggest, doubled.
pub const HELD_PER_SESSION_GUARANTEED: usize = 128;
/// Beyond that a UE may have one part in so many of the buffers that are free, so that a few leave room for others.
pub const HELD_FREE_SHARE: usize = 4;
/// Packets buffered for all UEs, as far as the configuration may go: half a gigabyte of packets of 2 KiB.
pub const HELD_MAX: usize = 262_144;
/// Packets of no session that wait while UPF-C is asked: some two megabytes, looked through when a session comes.
pub const STRAYS_MAX: u16 = 1_024;
/// Flows whose rule is remembered: 16 million, of 66 octets each.
pub const FLOWS_REMEMBERED_MAX: u32 = 1 << 24;
/// Packets from gNBs that no session names yet, while they wait for the SMF to name them: of a burst of handovers.
pub const UNKNOWN_PEER_PACKETS_MAX: usize = 512;
/// The same of one session: what a UE sends, at 1,000 packets a second, while the end of the CPF that hands it over is noticed.
pub const UNKNOWN_PEER_PACKETS_PER_SESSION_MAX: usize = 64;
/// The same from one address, so that one that sends without being named leaves room for others.
pub const UNKNOWN_PEER_PACKETS_PER_PEER_MAX: usize = 128;
/// Predictions at a time: each lives five seconds, so these are 13,000 handovers a second, a region's of several million UEs.
pub const PREDICTIONS_MAX: usize = 65_536;
/// Packets of the pipeline's own making that wait to be sent, besides what is held for UEs and may be released at once.
pub const OWN_OUTPUTS_MAX: usize = 1024;
/// Reports that wait for the control side; above it new ones wait as figures in their sessions, or are
/// counted lost.
pub const REPORTS_MAX: usize = 65_536;
/// Timers run in one call, so that no call is long.
pub const TIMERS_PER_TICK_MAX: usize = 256;
/// Error indications sent in one second: enough to tell every gNB of a region, too few to serve as an
/// amplifier.
pub const ERROR_INDICATIONS_PER_SECOND_MAX: u32 = 100;
/// Of these, those to one peer: half of them are for the others.
pub const ERROR_INDICATIONS_PER_PEER_MAX: u32 = 50;
/// Packets of tunnels that no session has, from one peer in one second, above which it is suspended: a gNB whose UEs send on after a restart of this UPF
/// learns of fifty tunnels a second, and sends some more packets into each meanwhile.
pub const UNKNOWN_TUNNELS_PER_PEER_MAX: u32 = 1_000;
/// Peers that are kept in mind for it by one pipeline.
pub const TEID_GUESSING_PEERS_MAX: usize = 64;
/// Networks behind one UE: a router's of a site, generously.
pub const FRAMED_ROUTES_MAX: usize = 16;
/// MAC addresses of one Ethernet session: a UE with a small switch behind it.
pub const MACS_PER_SESSION_MAX: usize = 16;
/// Frames for groups that are copied to the sessions of one data network in a second: more than ARP and neighbour
/// discovery of a site need, and no storm.
pub const FLOODS_PER_SECOND_MAX: u32 = 200;
/// Sessions that one such frame is copied to: with the rate above, 51,200 copies a second for each data network.
pub const FLOODED_SESSIONS_MAX: usize = 256;
/// Slices that have a rate of their own: TS 23.501 §5.15.2 lets a UE use eight of an operator's few dozen.
pub const SLICES_MAX: usize = 64;
/// Pipelines that share a UPF's sessions: the receive queues of an interface that AF_XDP takes.
pub const SHARDS_MAX: u8 = 16;
/// Peers whose paths are supervised: a region's gNBs, generously. Those beyond are counted, and served all the same.
pub const PATHS_MAX: usize = 4_096;
/// Echo requests answered in one second: a region's 1,000 gNBs may all ask at once; a flood gets no more.
pub const ECHOES_PER_SECOND_MAX: u32 = 1_000;
/// Requests that retransmission sends in one call.
pub const RETRANSMISSIONS_PER_TICK_MAX: usize = 256;
/// Rules of a data network's firewall, with all their ranges of ports: some hundred of an operator's, generously.
pub const FIREWALL_RULES_MAX: usize = 4_096;
/// Flows through the firewall of one data network: 16 million, of which each takes 96 octets.
pub const FLOWS_MAX: u32 = 1 << 24;
/// Addresses that the UEs of one data network are translated to: each takes 768 KiB when all its ports are used.
pub const NAT_ADDRESSES_MAX: u64 = 256;
/// Packets in fragments whose later ones are to have the ports of the first: of a second of a busy UPF.
pub const PORTS_AWAITED_MAX: usize = 1_024;
/// Packets in fragments, of one data network, whose later fragments are awaited.
pub const FRAGMENTED_MAX: usize = 4_096;
/// Where a state is kept, what a session has counted is written so often: what passes in that time is not charged if the process dies. With more sessions that are
/// active it is seldomer, for a packet thread looks at 32 of them in a millisecond at most, a hundredth of its time.
pub const COUNTED_EVERY: Duration = Duration::from_millis(100);
