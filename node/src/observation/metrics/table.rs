//! The table of metrics. Each metric is named, typed and described here and nowhere else: `/metrics` and `docs/metrics.md` are written
//! from it.

/// What a metric's readings do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// The value only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts durations by upper bounds.
    Histogram,
}

/// Unit of a reading: Prometheus' base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    None,
    /// The value is in seconds.
    Seconds,
    /// The value is in octets.
    Bytes,
}

/// Where the reading is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// The console: [`super::Metrics::add`], [`super::Metrics::set`].
    Console,
    /// A part of the program, which reports all its readings now and then: [`super::MetricSample`].
    Part,
    /// The console, from the procedures that end.
    Procedures,
    /// The process itself.
    Process,
}

/// One row of the table.
#[derive(Debug)]
pub struct Definition {
    /// Heading under which the reference page lists it.
    pub section: &'static str,
    /// Name. It ends in the unit, and in `_total` if the metric is a counter.
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: Unit,
    pub source: MetricSource,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Clause of TS 28.552 whose measurement is the nearest; empty where there is none.
    pub clause: &'static str,
    /// What it measures.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($section:literal {$(
        $metric:ident $name:literal $kind:ident $unit:ident $source:ident [$($label:literal),*] $clause:literal $help:literal;
    )*})*) => {
        /// A metric of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($(#[doc = $help] $metric,)*)* }

        impl Metric {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Metric] = &[$($(Metric::$metric,)*)*];

            /// The metric's row of the table.
            pub const fn definition(self) -> &'static Definition {
                match self {
                    $($(Metric::$metric => &Definition {
                        section: $section, name: $name, kind: MetricKind::$kind, unit: Unit::$unit, source: MetricSource::$source,
                        labels: &[$($label),*], clause: $clause, help: $help,
                    },)*)*
                }
            }
        }
    };
}

metrics! {
    "The program" {
        Uptime "whimbrel_uptime_seconds" Gauge Seconds Process [] "" "Time since the program started.";
        ResidentMemory "process_resident_memory_bytes" Gauge Bytes Process [] "" "Resident memory of the process.";
        CpuTime "process_cpu_seconds_total" Counter Seconds Process [] "" "CPU time of the process.";
        ApiRequests "whimbrel_api_requests_total" Counter None Console [] "" "HTTP requests to the API.";
        ApiRefused "whimbrel_api_refused_total" Counter None Console [] "" "HTTP requests that the API answered with an error.";
        ApiConnectionsClosed "whimbrel_api_connections_closed_total" Counter None Console [] "" "Connections to the API that were closed for new ones: their sender had its share, or all were taken.";
        CaptureLost "whimbrel_capture_lost_total" Counter None Part [] "" "N3 datagrams that a running capture lacks because its writer was too slow.";
        TraceSpansSent "whimbrel_trace_spans_sent_total" Counter None Console [] "" "Spans of procedures that the collector accepted (`otlp.endpoint`).";
        TraceSpansLost "whimbrel_trace_spans_lost_total" Counter None Console [] "" "Spans of procedures dropped because the collector did not accept them, or their queue was full.";
        LimitReached "whimbrel_limit_reached_total" Counter None Part ["limit"] "" "Times that a limit was reached, by limit (docs/limits.md). What exceeds it is dropped or refused; of logs, served and not kept.";
    }
    "gNBs, UEs and procedures" {
        Gnbs "whimbrel_gnbs" Gauge None Console [] "" "gNBs that have completed NG Setup. On a CTA that does not serve: gNBs that have an association with it.";
        Ues "whimbrel_ues" Gauge None Console [] "" "UE contexts in the AMF.";
        UesRegistered "whimbrel_ues_registered" Gauge None Console [] "§5.2.1.1" "UEs in state 5GMM-REGISTERED.";
        UesConnected "whimbrel_ues_connected" Gauge None Console [] "" "UEs in 5GMM-CONNECTED mode.";
        PduSessions "whimbrel_pdu_sessions" Gauge None Console [] "§5.3.1.1" "PDU sessions that are established.";
        UesRestored "whimbrel_ues_restored" Gauge None Console [] "" "UEs that were restored at the start, with their registration and their sessions.";
        UesNotRestored "whimbrel_ues_not_restored" Gauge None Console [] "" "UEs that were on the disk at the start and could not be restored: they register again.";
        UeStorageFailures "whimbrel_ue_storage_failures_total" Counter None Console [] "" "Times that UEs could not be read from the disk, or written to it.";
        PostgresFailures "whimbrel_postgres_failures_total" Counter None Console [] "" "Times that the subscribers could not be compared with PostgreSQL, once a second while it is away (docs/postgres.md).";
        RegistrationsElsewhere "whimbrel_registrations_elsewhere_total" Counter None Console [] "" "UEs that were deregistered here as they have registered at another home since (docs/postgres.md).";
        RegistrationsUnwritten "whimbrel_registrations_unwritten" Gauge None Console [] "" "Registrations and ends of registrations that PostgreSQL does not have yet: they wait in this home's file (docs/postgres.md).";
        SqnSlotShared "whimbrel_sqn_slot_shared" Gauge None Console [] "" "1 if another home issues SQNs in the same slot of the USIMs' arrays, else 0 (docs/postgres.md).";
        Overloaded "whimbrel_overloaded" Gauge None Console [] "" "1 while OVERLOAD START is in force at gNBs, else 0.";
        Procedures "whimbrel_procedures_total" Counter None Procedures ["procedure", "result"] "§5.2.2, §5.2.3, §5.3.1" "Procedures that have ended, by procedure and result (completed or refused).";
        ProcedureDuration "whimbrel_procedure_seconds" Histogram Seconds Procedures ["procedure", "le"] "" "Time from the first to the last message of a completed procedure.";
        LocationReports "whimbrel_location_reports_total" Counter None Console [] "" "LOCATION REPORT messages that answer a request of the core.";
        LocationFailures "whimbrel_location_failures_total" Counter None Console [] "" "Requests for the location of a UE that failed.";
    }
    "Memory of UEs" {
        MemoryLimit "whimbrel_memory_limit_bytes" Gauge Bytes Part [] "" "Memory that this process may take (`memory.limit`).";
        UesAtRest "whimbrel_ues_at_rest" Gauge None Part [] "" "UEs that are stored as records, since they had no messages for `memory.rest_after`.";
        UeRecords "whimbrel_ue_records_bytes" Gauge Bytes Part [] "" "Octets of these records.";
        UeMemory "whimbrel_ue_memory_bytes" Gauge Bytes Part ["tier"] "" "Octets of the regions that hold records, by tier: fast (memory), slow (zram or file).";
        UeRecordReads "whimbrel_ue_record_reads_total" Counter None Part ["tier"] "" "Records that were read for a message of their UEs, by tier.";
        UesStored "whimbrel_ues_stored_total" Counter None Part [] "" "Times that a UE was stored as a record.";
        UeRecordsMoved "whimbrel_ue_records_moved_total" Counter None Part [] "" "Records that were moved to records of the same hotness.";
        UeRecordStall "whimbrel_ue_record_stall_seconds_total" Counter Seconds Part [] "" "Time that messages waited for records in the slow tier.";
        UeRecordStallLongest "whimbrel_ue_record_stall_longest_seconds" Gauge Seconds Part [] "" "The longest of these waits.";
        UeRelocationLongest "whimbrel_ue_relocation_longest_seconds" Gauge Seconds Part [] "" "The longest time that messages waited while records were moved.";
        UesNotStored "whimbrel_ues_not_stored_total" Counter None Part [] "" "Times that there was no room for a record, and the UE stayed in memory as it was.";
        UesAdded "whimbrel_ues_added_total" Counter None Part [] "" "UEs that were added like those that had registered, for a demonstration.";
        UeRecordsDamaged "whimbrel_ue_records_damaged_total" Counter None Part [] "" "Records that were not read as they were written: their UEs have to register again.";
    }
    "N2" {
        N2Received "whimbrel_n2_messages_received_total" Counter None Console [] "" "NGAP messages received.";
        N2Sent "whimbrel_n2_messages_sent_total" Counter None Console [] "" "NGAP messages sent.";
        N2ReceivedBytes "whimbrel_n2_received_bytes_total" Counter Bytes Console [] "" "Octets of the NGAP messages received.";
        N2SentBytes "whimbrel_n2_sent_bytes_total" Counter Bytes Console [] "" "Octets of the NGAP messages sent.";
        N2ForeignPpid "whimbrel_n2_foreign_ppid_total" Counter None Console [] "" "SCTP messages dropped because their payload protocol identifier is not NGAP's (60).";
        N2Unsent "whimbrel_n2_unsent_total" Counter None Console [] "" "NGAP messages dropped because the SCTP send queue was full.";
        N2Stalled "whimbrel_n2_stalled_total" Counter None Console [] "" "Associations aborted because the gNB acknowledged nothing while the send queue was full.";
        N2EarlyDropped "whimbrel_n2_early_dropped_total" Counter None Console [] "" "NGAP messages that reached a CTA before it serves, exceeded its buffer and were dropped.";
        NgResets "whimbrel_ng_reset_total" Counter None Console [] "" "NG RESET messages received from gNBs.";
        NgSetupTimeouts "whimbrel_ng_setup_timeouts_total" Counter None Console [] "" "Associations aborted because no NG SETUP REQUEST came.";
        NgSetupTakeovers "whimbrel_ng_setup_takeovers_total" Counter None Console [] "" "NG SETUP REQUESTs that took a Global RAN Node ID over from another association.";
        NgSetupIdentityConflicts "whimbrel_ng_setup_identity_conflicts_total" Counter None Console [] "" "Times that two gNBs were found to use one Global RAN Node ID at once.";
        NgapRefused "whimbrel_ngap_refused_total" Counter None Console [] "" "NGAP messages answered with ERROR INDICATION.";
        NgapErrorIndications "whimbrel_ngap_error_indications_total" Counter None Console [] "" "ERROR INDICATION messages received from gNBs.";
        NgapDropped "whimbrel_ngap_dropped_total" Counter None Console [] "" "NGAP messages dropped because the UE, gNB or procedure that they name does not exist.";
        RanConfigurationTransfers "whimbrel_ran_configuration_transfers_total" Counter None Console [] "" "RAN configuration transfers relayed between gNBs.";
    }
    "NAS and security" {
        NasRetransmitted "whimbrel_nas_retransmitted_total" Counter None Console [] "" "NAS messages sent again because their timer expired without an answer.";
        NasDropped "whimbrel_nas_dropped_total" Counter None Console ["reason"] "" "Uplink NAS messages dropped, by reason: not_nas (too short or not NAS), integrity (wrong MAC or reused COUNT), unprotected (must be protected and is not), out_of_state (not expected in this state), duplicate (repeats a message that is being handled), unserved (payload that this network does not serve), late (answer after its timer).";
        UpSecurityPolicyMismatches "whimbrel_up_security_policy_mismatches_total" Counter None Console [] "" "PATH SWITCH REQUESTs with a user plane security policy that differs from the SMF's (TS 33.501 §6.6.1).";
        UeSecurityCapabilityMismatches "whimbrel_ue_security_capability_mismatches_total" Counter None Console [] "" "PATH SWITCH REQUESTs with UE security capabilities that differ from the UE's own (TS 33.501 §6.7.3.1).";
    }
    "N3 and GTP-U" {
        N3UlPackets "whimbrel_n3_ul_packets_total" Counter None Part [] "§5.4.1.1" "Uplink packets of UEs that the UPF forwarded.";
        N3UlBytes "whimbrel_n3_ul_bytes_total" Counter Bytes Part [] "§5.4.1.3" "Octets of these packets, without GTP-U headers.";
        N3DlPackets "whimbrel_n3_dl_packets_total" Counter None Part [] "§5.4.1.2" "Downlink packets for UEs that the UPF forwarded.";
        N3DlBytes "whimbrel_n3_dl_bytes_total" Counter Bytes Part [] "§5.4.1.4" "Octets of these packets, without GTP-U headers.";
        N3Received "whimbrel_n3_received_total" Counter None Part [] "" "Datagrams received from gNBs, signalling included.";
        N3Sent "whimbrel_n3_sent_total" Counter None Part [] "" "Datagrams sent to gNBs, signalling included.";
        N3SentBySocket "whimbrel_n3_sent_by_socket_total" Counter None Part [] "" "Of the datagrams sent: those that AF_XDP left to a socket, because the gNB is behind another interface or its Ethernet address is not known yet.";
        N3Relayed "whimbrel_n3_relayed_total" Counter None Part [] "" "Packets passed on from one tunnel to another: between gNBs in a handover (indirect forwarding), and between gNB and anchor by an intermediate UPF.";
        GtpuEchoRequests "whimbrel_gtpu_echo_requests_total" Counter None Part [] "" "Echo Requests answered.";
        GtpuEchoRequestsSent "whimbrel_gtpu_echo_requests_sent_total" Counter None Part [] "" "Echo Requests sent.";
        GtpuPaths "whimbrel_gtpu_paths" Gauge None Part [] "" "N3 paths supervised by Echo Requests.";
        GtpuPathsFailed "whimbrel_gtpu_paths_failed" Gauge None Part [] "" "Of the supervised paths: those that do not answer.";
        GtpuPathsUnsupervised "whimbrel_gtpu_paths_unsupervised_total" Counter None Part [] "" "Tunnels set up to gNBs whose path is not supervised, because too many are.";
        GtpuPeersSuspended "whimbrel_gtpu_peers_suspended_total" Counter None Part [] "" "Peers suspended for a minute because they named more than a thousand unknown tunnels in a second; meanwhile their packets are taken only for sessions that name them.";
        GtpuErrorIndicationsSent "whimbrel_gtpu_error_indications_sent_total" Counter None Part [] "" "Error Indications sent.";
        GtpuErrorIndicationsReceived "whimbrel_gtpu_error_indications_received_total" Counter None Part [] "" "Error Indications received that name the tunnel of a session.";
        GtpuEndMarkersSent "whimbrel_gtpu_end_markers_sent_total" Counter None Part [] "" "End Markers sent.";
        UpfCopiesSent "whimbrel_upf_copies_sent_total" Counter None Part [] "" "Copies of packets sent to the LI function of lawful interception.";
        GtpuEndMarkersReceived "whimbrel_gtpu_end_markers_received_total" Counter None Part [] "" "End Markers received.";
        GtpuEndMarkersRelayed "whimbrel_gtpu_end_markers_relayed_total" Counter None Part [] "" "End Markers passed on from one tunnel to another, in a handover or by an intermediate UPF.";
    }
    "The UPF" {
        UpfSessions "whimbrel_upf_sessions" Gauge None Part [] "" "PFCP sessions in the UPF.";
        UpfDropped "whimbrel_upf_dropped_total" Counter None Part ["reason"] "" "Packets that the UPF dropped, by reason.";
        UpfIoDropped "whimbrel_upf_io_dropped_total" Counter None Part ["reason"] "" "Packets lost between the UPF and its interfaces, by reason (docs/packet-io.md).";
        UpfIoReceiveErrors "whimbrel_upf_io_receive_errors_total" Counter None Part [] "" "Receive calls of the UPF's sockets and devices that failed.";
        UpfBufferedTotal "whimbrel_upf_buffered_total" Counter None Part [] "" "Downlink packets that were buffered for idle UEs or through a handover.";
        UpfBuffered "whimbrel_upf_buffered" Gauge None Part [] "" "Downlink packets in these buffers now.";
        UpfBufferedBytes "whimbrel_upf_buffered_bytes" Gauge Bytes Part [] "" "Octets in these buffers now.";
        UpfStrays "whimbrel_upf_strays_total" Counter None Part [] "" "Packets without a session that waited for one to be set up (`buffering.strays`).";
        UpfEcnMarked "whimbrel_upf_ecn_marked_total" Counter None Part [] "" "Packets marked with ECN Congestion Experienced.";
        UpfFlowCacheL1Hits "whimbrel_upf_flow_cache_l1_hits_total" Counter None Part [] "" "Packets of sessions with eight filters or more whose rule the first level of the flow cache knew.";
        UpfFlowCacheL2Hits "whimbrel_upf_flow_cache_l2_hits_total" Counter None Part [] "" "The same for the second level.";
        UpfFlowCacheMisses "whimbrel_upf_flow_cache_misses_total" Counter None Part [] "" "Packets of such sessions for which the classifier was searched.";
        UpfNamesKnown "whimbrel_upf_names_known" Gauge None Part [] "" "Addresses and flows that sessions have learnt by DNS or TLS server name (docs/applications.md).";
        UpfPredictionsTrue "whimbrel_upf_predictions_true_total" Counter None Part [] "" "Predicted handovers whose UE arrived.";
        UpfPredictionsFalse "whimbrel_upf_predictions_false_total" Counter None Part [] "" "Packets without a session that the prediction filter let through although none was predicted.";
        UpfPredictionsFiltered "whimbrel_upf_predictions_filtered_total" Counter None Part [] "" "Packets without a session that the prediction filter rejected.";
        UpfPredictionsRefused "whimbrel_upf_predictions_refused_total" Counter None Part [] "" "Predicted handovers that found no room.";
        UpfReportsLost "whimbrel_upf_reports_lost_total" Counter None Part [] "" "Session reports dropped because their queue was full.";
        UpfThreadTransfers "whimbrel_upf_thread_transfers_total" Counter None Part [] "" "Packets that one packet thread received and passed to the thread that has their session.";
        UpfFastPathPackets "whimbrel_upf_fast_path_packets_total" Counter None Part ["direction"] "" "Packets that the fast path forwarded in the driver (`n3.io: xdp`), by direction. The other counters of the UPF include them.";
        UpfFastPathSessions "whimbrel_upf_fast_path_sessions" Gauge None Part [] "" "Sessions whose packets the fast path forwards.";
        HarvestSurveys "whimbrel_upf_surveys_total" Counter None Part [] "" "Surveys of all sessions' usage that packet threads have completed (`n3.harvest`, docs/harvest.md), each thread's counted.";
        HarvestWork "whimbrel_upf_survey_work_seconds_total" Counter Seconds Part [] "" "Time of the packet threads that surveys took; what is read while packets' memory is loaded counts as long as it takes otherwise.";
        HarvestSessions "whimbrel_upf_survey_places_total" Counter None Part ["during"] "" "Places of the session table that surveys have read, by when: idle, after a look at the sources that found no packet; stall, while packets' memory was loaded.";
        HarvestCost "whimbrel_upf_survey_cost_percent" Gauge None Part [] "" "By how many per cent the 95th percentile of packets' time in a packet thread was longer with a survey than without, as `n3.harvest` compared them last.";
        SurveySessions "whimbrel_upf_survey_sessions" Gauge None Part ["data_network"] "" "Sessions that the last survey found, by data network.";
        SurveyActive "whimbrel_upf_survey_sessions_active" Gauge None Part ["data_network"] "" "Those of them with a packet in the minute before.";
        SurveyUplink "whimbrel_upf_survey_uplink_bytes" Gauge Bytes Part ["data_network"] "" "Octets that these sessions have sent since each began.";
        SurveyDownlink "whimbrel_upf_survey_downlink_bytes" Gauge Bytes Part ["data_network"] "" "Octets that they have received.";
        RouterAdvertisements "whimbrel_router_advertisements_total" Counter None Part [] "" "IPv6 Router Advertisements sent to UEs.";
    }
    "Prediction of handovers" {
        ForesightPredictions "whimbrel_foresight_predictions_total" Counter None Part ["outcome"] "" "Predictions of handovers: `made`, and of these `hit`, `miss`, `late`, `expired`; `refused` beyond the bound; `prepared` targets (docs/foresight.md).";
        ForesightUnpredicted "whimbrel_foresight_unpredicted_total" Counter None Part [] "" "Handovers without a prediction.";
        ForesightUes "whimbrel_foresight_ues" Gauge None Part [] "" "UEs that are followed.";
        ForesightLive "whimbrel_foresight_live" Gauge None Part [] "" "Predictions that live.";
    }
    "N4" {
        N4Received "whimbrel_n4_received_total" Counter None Part [] "" "PFCP messages that the UPF received from SMFs of other hosts.";
        N4Sent "whimbrel_n4_sent_total" Counter None Part [] "" "PFCP messages that the UPF sent to SMFs of other hosts.";
        N4Unsent "whimbrel_n4_unsent_total" Counter None Part [] "" "PFCP messages of the UPF that the kernel did not send; PFCP repeats them.";
        N4BadMessages "whimbrel_n4_bad_messages_total" Counter None Part [] "" "PFCP messages that the UPF could not decode or did not expect.";
        N4Spoofed "whimbrel_n4_spoofed_total" Counter None Part [] "" "PFCP messages dropped because they claimed to come from this program's own SMF.";
        N4UnknownPeer "whimbrel_n4_unknown_peer_total" Counter None Part [] "" "PFCP messages dropped because `n4.peers` does not list the sender's address.";
        SmfN4Received "whimbrel_smf_n4_received_total" Counter None Part [] "" "PFCP messages that the SMF received from UPFs of other hosts.";
        SmfN4Sent "whimbrel_smf_n4_sent_total" Counter None Part [] "" "PFCP messages that the SMF sent to UPFs of other hosts.";
        SmfN4Shared "whimbrel_smf_n4_shared_total" Counter None Part [] "" "PFCP messages that the SMF received from the UPF of its unit over their link, through shared memory.";
        SmfN4Unsent "whimbrel_smf_n4_unsent_total" Counter None Part [] "" "PFCP messages of the SMF that the kernel did not send, or for which the UPF of the unit has no room; PFCP repeats them.";
        SmfUpfUes "whimbrel_smf_upf_ues" Gauge None Part ["upf"] "" "UEs with sessions at a UPF, as the SMF counts them, by UPF.";
        SmfUpfDrained "whimbrel_smf_upf_drained" Gauge None Part ["upf"] "" "1 while a UPF is drained before maintenance (docs/upf.md), else 0, by UPF.";
        SmfN4UnknownUpf "whimbrel_smf_n4_unknown_upf_total" Counter None Part [] "" "PFCP messages dropped because no configured UPF has the sender's address.";
    }
    "N6" {
        N6Received "whimbrel_n6_received_total" Counter None Part [] "" "Packets received from data networks.";
        N6Sent "whimbrel_n6_sent_total" Counter None Part [] "" "Packets sent into data networks.";
        N6Segmented "whimbrel_n6_segmented_total" Counter None Part [] "" "Packets that the kernel delivered unsegmented (TSO, USO) and the UPF segmented.";
        N6SentByDevice "whimbrel_n6_sent_by_device_total" Counter None Part [] "" "Of the packets sent: those that took a TUN device although their data network has an `n6_interface`.";
        FirewallFlows "whimbrel_upf_firewall_flows" Gauge None Part ["dnn"] "" "Flows that the firewall tracks.";
        FirewallFlowsBegun "whimbrel_upf_firewall_flows_begun_total" Counter None Part ["dnn"] "" "Flows that began.";
        FirewallFlowsEvicted "whimbrel_upf_firewall_flows_evicted_total" Counter None Part ["dnn"] "" "Flows evicted before their timeout because the table was full.";
        NatPorts "whimbrel_upf_nat_ports" Gauge None Part ["dnn"] "" "Outside ports and ICMP identifiers that UEs hold.";
        NatPortsGivenUp "whimbrel_upf_nat_ports_given_up_total" Counter None Part ["dnn"] "" "Outside ports that UEs with most lost because their outside address had none free.";
        NatPackets "whimbrel_upf_nat_packets_total" Counter None Part ["dnn"] "" "Packets whose addresses were translated.";
        FirewallRulePackets "whimbrel_upf_firewall_rule_packets_total" Counter None Part ["rule"] "" "Packets that a firewall rule decided on, by DNN, number and text of the rule.";
    }
    "Peer AMFs (N14)" {
        PeerAmfs "whimbrel_peer_amfs" Gauge None Part [] "" "Peer AMFs that are connected.";
        PeerAmfMessagesIn "whimbrel_peer_amf_messages_in_total" Counter None Part [] "" "Messages received from peer AMFs.";
        PeerAmfMessagesOut "whimbrel_peer_amf_messages_out_total" Counter None Part [] "" "Messages sent to peer AMFs.";
        PeerAmfUnsent "whimbrel_peer_amf_unsent_total" Counter None Part [] "" "Messages dropped because the peer AMF was not connected.";
        PeerAmfRejectedMessages "whimbrel_peer_amf_rejected_messages_total" Counter None Part [] "" "Messages of peer AMFs that were ignored: malformed, of another version, or about no UE that moves here.";
        PeerAmfRejectedCalls "whimbrel_peer_amf_rejected_calls_total" Counter None Part [] "" "Connections refused because the caller is not a configured peer AMF.";
        PeerReplicas "whimbrel_peer_replicas" Gauge None Part [] "" "UEs of peer AMFs whose state is held here (`peer_amfs.amfs[].replicas`).";
        PeerReplicasSent "whimbrel_peer_replicas_sent_total" Counter None Part [] "" "States of UEs, or changes of states, that peer AMFs were sent ahead.";
        PeerReplicasUsed "whimbrel_peer_replicas_used_total" Counter None Part [] "" "UEs that came from a peer AMF by the state held here and what had changed since.";
        PeerReplicasStale "whimbrel_peer_replicas_stale_total" Counter None Part [] "" "UEs that came from a peer AMF by a state that is not held here: the whole state was requested.";
        PeerReplicasPromoted "whimbrel_peer_replicas_promoted_total" Counter None Part [] "" "UEs of a peer AMF that was lost which came here, and were served from the state held here.";
    }
    "Cluster: the CTA and its CPFs" {
        CpfHeartbeats "whimbrel_cpf_heartbeats_total" Counter None Part [] "" "Heartbeats sent to CPFs and to the CTA replica.";
        CpfSilent "whimbrel_cpf_silent_total" Counter None Part [] "" "CPFs declared lost because they did not answer heartbeats, S-BFD probes or messages on their link.";
        CpfUnresponsive "whimbrel_cpf_unresponsive_total" Counter None Part [] "" "Of these: CPFs that answered heartbeats but nothing on their link. Look for a firewall or an MTU problem between them and the CTA.";
        CpfFalseAlarms "whimbrel_cpf_false_alarms_total" Counter None Part [] "" "CPFs that were declared lost and were alive; they rejoin without UEs.";
        CpfFailuresDeferred "whimbrel_cpf_failures_deferred_total" Counter None Part [] "" "Times that an unresponsive CPF was not declared lost because no other CPF answered either.";
        CpfExcluded "whimbrel_cpf_excluded_total" Counter None Part [] "" "CPFs disconnected because they violated the link protocol; accepted again after five seconds.";
        CpfLost "whimbrel_cpf_lost_total" Counter None Part [] "" "CPFs that were lost, for any reason.";
        HeartbeatsIgnored "whimbrel_heartbeats_ignored_total" Counter None Part ["reason"] "" "Heartbeats ignored, by reason: malformed, forged (not authenticated by the cluster's key), foreign (from a process that is not monitored), stale (late or repeated).";
        LinkRejected "whimbrel_link_rejected_total" Counter None Part [] "" "Connections refused because the caller does not belong to the cluster: another key, version or region.";
        LinkVersionsRefused "whimbrel_link_versions_refused_total" Counter None Part [] "" "Connections refused because the caller's link version differs.";
        LinkFramesReceived "whimbrel_link_frames_received_total" Counter None Part [] "" "Messages received from CPFs and the CTA replica.";
        LinkFramesShared "whimbrel_link_frames_shared_total" Counter None Part [] "" "Of them, messages that came through the shared memory of a unit.";
        LinkFramesSent "whimbrel_link_frames_sent_total" Counter None Part [] "" "Messages sent to CPFs and the CTA replica.";
        LinksEnded "whimbrel_links_ended_total" Counter None Part ["reason"] "" "Links to CPFs, the CTA replica and a unit's UPF that ended or did not come up, by reason. `bad_ring`: a process wrote into the shared memory what none writes; `queue_full`: it takes too little of what it is sent.";
        EtcdRecordsIgnored "whimbrel_etcd_records_ignored_total" Counter None Part [] "" "Records at etcd ignored because they are invalid; the former values stay in force.";
        ReplicasMissing "whimbrel_replicas_missing" Gauge None Part [] "" "Replicas that each UE lacks because there are too few CPFs.";
    }
    "Cluster: a canary" {
        CanaryUes "whimbrel_canary_ues" Gauge None Part ["side"] "" "During a canary: UEs of the CPFs of its version (side canary) and of the other version (others).";
        CanaryProcedures "whimbrel_canary_procedures_total" Counter None Part ["side"] "" "Procedures that they have ended since the canary began.";
        CanaryFailures "whimbrel_canary_failures_total" Counter None Part ["side"] "" "Of these: refused or failed, with UEs that were discarded after a fault or lost with their CPF.";
        CanaryCpfsLost "whimbrel_canary_cpfs_lost_total" Counter None Part ["side"] "" "CPFs that were lost since the canary began.";
        CanaryAnswerDuration "whimbrel_canary_answer_seconds" Gauge Seconds Part ["side"] "" "Time in which the CPFs answer 99 of 100 inputs of UEs.";
    }
    "Failures of nodes and links (S-BFD)" {
        SbfdSessions "whimbrel_sbfd_sessions" Gauge None Part [] "" "Peers that are probed.";
        SbfdSessionsUp "whimbrel_sbfd_sessions_up" Gauge None Part [] "" "Of these, peers that answer.";
        SbfdProbes "whimbrel_sbfd_probes_total" Counter None Part [] "" "S-BFD probes that were sent.";
        SbfdAnswers "whimbrel_sbfd_answers_total" Counter None Part [] "" "Answers accepted.";
        SbfdReflected "whimbrel_sbfd_reflected_total" Counter None Part [] "" "Probes of others that were answered.";
        SbfdFailures "whimbrel_sbfd_failures_total" Counter None Part [] "" "Peers that did not answer the configured number of probes in a row.";
        SbfdDeferred "whimbrel_sbfd_failures_deferred_total" Counter None Part [] "" "Times that a CPF was not declared failed because no other CPF answered either.";
        SbfdLate "whimbrel_sbfd_late_total" Counter None Part [] "" "Times that the probing thread itself was an interval or more too late. If this grows, failures are found later: give the process CAP_SYS_NICE, or choose a longer interval.";
        SbfdDropped "whimbrel_sbfd_dropped_total" Counter None Part ["reason"] "" "S-BFD packets dropped, by reason: those of RFC 5880 §6.8.6, ttl (through a router), direction, discriminator (of no session), source (another address than the peer's), state, rate (a source sends more than is answered).";
    }
    "Cluster: replication and takeover" {
        UesWithoutBackup "whimbrel_ues_without_backup" Gauge None Part [] "" "UEs that would be lost with their primary CPF, because no replica is up to date. More than 0 for some milliseconds after a loss; longer if CPFs do not reach each other or are too few.";
        UesTakenOver "whimbrel_ues_taken_over_total" Counter None Part [] "" "UEs whose replica became primary after the loss of a CPF.";
        InputsReplayed "whimbrel_inputs_replayed_total" Counter None Part [] "" "Inputs of UEs replayed by takeovers.";
        UesRecovered "whimbrel_ues_recovered_total" Counter None Part [] "" "UEs with a procedure under way, or a message soon after, when their CPF was lost, that continued at their replica.";
        RecoveryDuration "whimbrel_recovery_seconds" Gauge Seconds Part ["quantile"] "" "Time until such a UE continued: from the detection of the loss, or from the UE's message if that came later.";
        RecoveryAllDuration "whimbrel_recovery_all_seconds" Gauge Seconds Part ["quantile"] "" "Time from the detection of a loss until every UE of the lost CPF had a new primary.";
        UesLost "whimbrel_ues_lost_total" Counter None Part [] "" "UEs released because no replica had their state; they register again.";
        UesMoved "whimbrel_ues_moved_total" Counter None Part ["form"] "" "UEs that moved to another CPF in order, by form: fast (the state was there already), default (the state was sent first).";
        UeMovesAbandoned "whimbrel_ue_moves_abandoned_total" Counter None Part [] "" "Moves given up because the state did not arrive in time; the UE stays at its CPF.";
        CheckpointsUnusable "whimbrel_checkpoints_unusable_total" Counter None Part [] "" "Checkpoints from which a UE could not be served: missing, unreadable or not what their sender reported. The next replica is tried.";
        ReplicasLagging "whimbrel_replicas_lagging_total" Counter None Part [] "" "Replicas replaced because they did not receive a UE's state within 30 seconds, or two where the log is half full.";
        AnswersFenced "whimbrel_answers_fenced_total" Counter None Part [] "" "Answers of CPFs ignored because they are not the UE's primary, or of an earlier term.";
        CheckpointAcksRefused "whimbrel_checkpoint_acks_refused_total" Counter None Part [] "" "Reports of CPFs refused because they claim a state that cannot exist yet: the CPF is faulty.";
        ReplaysDiverged "whimbrel_replays_diverged_total" Counter None Part [] "" "Replays whose outputs differ from those that were sent. The UE registers again. This is a fault of the program: please report it.";
        NasCountReuse "whimbrel_nas_count_reuse_total" Counter None Part [] "" "Outputs withheld because they reuse a downlink NAS COUNT under the same keys (TS 33.501 §6.4.3.1). The UE registers again. This is a fault of the program: please report it.";
        InputsSandboxed "whimbrel_inputs_sandboxed_total" Counter None Part [] "" "Inputs that may have ended a CPF and were tried in the replay sandbox first.";
        UesDiscarded "whimbrel_ues_discarded_total" Counter None Part [] "" "UEs discarded because one of their inputs ended the replay sandbox. This is a fault of the program: please report it.";
        LogBytes "whimbrel_log_bytes" Gauge Bytes Part [] "" "Size of the logs of all UEs.";
        LogUes "whimbrel_log_ues" Gauge None Part [] "" "UEs whose log is not empty.";
    }
    "Cluster: the CTA replica" {
        CtaReplicaRecords "whimbrel_cta_replica_records_total" Counter None Part [] "" "Inputs sent to the CTA replica.";
        CtaReplicaBytes "whimbrel_cta_replica_bytes_total" Counter Bytes Part [] "" "Octets of these inputs.";
        CtaReplicaWaiting "whimbrel_cta_replica_waiting" Gauge None Part [] "" "Inputs whose outputs wait until the CTA replica has confirmed them.";
        CtaReplicaRestarts "whimbrel_cta_replica_restarts_total" Counter None Console [] "" "Times that this CTA replica could not follow the primary and requested a new copy; the log has the reason.";
    }
    "Service-based interfaces" {
        SbiRequests "whimbrel_sbi_requests_total" Counter None Part [] "" "Requests of UEs for network functions of other vendors.";
        SbiAnswers "whimbrel_sbi_responses_total" Counter None Part [] "" "HTTP responses of network functions of other vendors.";
        SbiCallbacks "whimbrel_sbi_callbacks_total" Counter None Part [] "" "Notifications of network functions of other vendors.";
        SbiFaults "whimbrel_sbi_faults_total" Counter None Part ["reason"] "" "Requests that a network function of another vendor did not answer, or not as it should.";
    }
    "Network functions of a unit" {
        FunctionRequests "whimbrel_function_requests_total" Counter None Part ["function"] "" "Requests to network functions that are processes of this unit: `udm`, `pcf` or `chf`.";
        FunctionFaults "whimbrel_function_faults_total" Counter None Part ["function"] "" "Those of them that were not answered in time.";
    }
    "Charging function" {
        ChfRequests "whimbrel_chf_requests_total" Counter None Part ["result"] "" "Requests to this core's charging function; the result is `answered`, `refused` or `failed`.";
        ChfTransactions "whimbrel_chf_transactions_total" Counter None Part [] "" "Transactions in which they were executed, each with a wait for the disk.";
        ChfExpired "whimbrel_chf_sessions_expired_total" Counter None Part [] "" "Charging sessions that were closed because no report came.";
        ChfSessions "whimbrel_chf_sessions" Gauge None Part [] "" "Open charging sessions.";
        ChfAccounts "whimbrel_chf_accounts" Gauge None Part [] "" "Accounts of subscribers.";
    }
    "Brokers" {
        BrokerQuestions "whimbrel_broker_questions_total" Counter None Part [] "" "Requests sent to brokers.";
        BrokerAnswers "whimbrel_broker_answers_total" Counter None Part [] "" "Answers of brokers.";
        BrokerUnreachable "whimbrel_broker_unreachable_total" Counter None Part ["reason"] "" "Requests that a broker did not answer.";
        VeilQuestions "whimbrel_veil_questions_total" Counter None Part [] "" "Requests of veiled UEs for their broker.";
        VeilAnswers "whimbrel_veil_answers_total" Counter None Part [] "" "Answers of their broker.";
        VeilGroups "whimbrel_veil_tokens_broadcast_total" Counter None Part [] "" "Tokens broadcast, each of which has opened a session group.";
        VeilReports "whimbrel_veil_reports_total" Counter None Part [] "" "Sessions of veiled UEs that were reported.";
        VeilCopies "whimbrel_veil_copies_total" Counter None Part [] "" "Packets of intercepted sessions that were sent to an agency, sealed.";
        VeilOrders "whimbrel_veil_orders_total" Counter None Part [] "" "Orders of agencies that were carried out.";
        VeilTokens "whimbrel_veil_tokens" Gauge None Part [] "" "Tokens in the wallet that are not spent.";
    }
    "A packet logger (`whimbrel packet-logger`)" {
        LoggerPackets "whimbrel_logger_packets_total" Counter None Part [] "" "Packets of both directions that were given a counter.";
        LoggerKept "whimbrel_logger_packets_kept" Gauge None Part [] "" "Packets that are kept until the UPF has done with them.";
        LoggerOutcomes "whimbrel_logger_packet_outcomes_total" Counter None Part ["outcome"] "" "What became of packets: left, ended in the UPF, refused by the bound, evicted while they waited for an idle UE, overtaken by later ones before a takeover, lost on the way.";
        LoggerReceiveFull "whimbrel_logger_receive_full_total" Counter None Part [] "" "Packets that the kernel dropped because the logger did not take them in time: they have no counter.";
        LoggerSendErrors "whimbrel_logger_send_errors_total" Counter None Part [] "" "Packets that the kernel did not send, to gNBs, data networks or UPFs.";
        LoggerReplayed "whimbrel_logger_packets_replayed_total" Counter None Part [] "" "Packets that a UPF was given that had taken over.";
        LoggerDoubled "whimbrel_logger_packets_doubled_total" Counter None Part [] "" "Packets that came back from the UPF and had left already, or were not known: not sent.";
        LoggerTakeovers "whimbrel_logger_takeovers_total" Counter None Part [] "" "Times that the replica took over.";
        LoggerReplica "whimbrel_logger_replica" Gauge None Part [] "" "1 while a replica has the whole state, else 0.";
        LoggerLinksRejected "whimbrel_logger_links_rejected_total" Counter None Part [] "" "Links refused because the caller is no UPF of this version, has another configuration or another key, or sent what no UPF sends.";
        LoggerRequestsRefused "whimbrel_logger_n4_refused_total" Counter None Part [] "" "PFCP messages of SMFs that found no room.";
    }
    "A CPF (`whimbrel cpf --api`)" {
        CpfInService "whimbrel_cpf_in_service" Gauge None Part [] "" "1 while a CTA uses this CPF, else 0.";
        CpfInServiceDuration "whimbrel_cpf_in_service_seconds" Gauge Seconds Part [] "" "Time since a CTA began to use it.";
        CpfListed "whimbrel_cpf_listed" Gauge None Part [] "" "1 while etcd lists it, else 0. With `--etcd` it gets UEs only while it is listed.";
        CpfUes "whimbrel_cpf_ues" Gauge None Part [] "" "UEs whose primary it is.";
        CpfReplicasHeld "whimbrel_cpf_replicas_held" Gauge None Part [] "" "UEs whose replica it is.";
        CpfCheckpointsUnusable "whimbrel_cpf_checkpoints_unusable_total" Counter None Part [] "" "Checkpoints sent to it from which it could not serve.";
        CpfMessagesUnreadable "whimbrel_cpf_messages_unreadable_total" Counter None Part [] "" "Messages of other CPFs skipped because they could not be decoded.";
        CpfPeers "whimbrel_cpf_peers" Gauge None Part [] "" "Other CPFs that it knows.";
        CpfPeersResyncing "whimbrel_cpf_peers_resyncing" Gauge None Part [] "" "Of these: CPFs to which a link has ended, until all that it carried was sent again.";
        CpfRejoins "whimbrel_cpf_rejoins_total" Counter None Part [] "" "Times that it lost its CTA for good or was declared lost, and rejoined without UEs.";
        CpfInputs "whimbrel_cpf_inputs_total" Counter None Part [] "" "Inputs of UEs that it ran.";
        CpfBusy "whimbrel_cpf_busy_seconds_total" Counter Seconds Part [] "" "Time that it spent on these inputs.";
        CpfInputDuration "whimbrel_cpf_input_seconds" Gauge Seconds Part ["quantile"] "" "Time that one input took.";
    }
}

impl Metric {
    /// Name of the metric.
    pub const fn name(self) -> &'static str {
        self.definition().name
    }
}

/// The reference page of all metrics, `docs/metrics.md`: those with a reader first.
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         `GET /metrics` of the API (`api.address`) gives these in the Prometheus text format. This page is written by `whimbrel metrics --all` from the\n\
         table in `node/src/observation/metrics/table.rs`.\n\n",
    );
    page += CONVENTIONS;
    page += "\nThe metrics up to [All others](#all-others) have a reader: a dashboard or an alert rule ([observability.md](observability.md)), a page of this book,\n\
             the console, `whimbrel why` or another command. The others show what one part does in detail.\n";
    tables(&mut page, "##", true);
    page += "\n## All others\n";
    tables(&mut page, "###", false);
    page
}

/// The part of [`page`] that has the metrics with a reader.
pub fn page_of_read_metrics() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         These have a reader: a dashboard, an alert rule, a page of the book, the console, `whimbrel why` or another command. `whimbrel metrics --all` adds\n\
         the others.\n\n",
    );
    page += CONVENTIONS;
    tables(&mut page, "##", true);
    page
}

const CONVENTIONS: &str = "Durations are in seconds, sizes in octets (`_bytes`). The last column names the measurement of TS 28.552 that is the nearest; it is the same\n\
     quantity, without its split by S-NSSAI and its own intervals. A counter starts at 0 with the program. Metrics of parts that do not run are absent.\n";

/// The metrics that have a reader or those that have none, as a table for each section, under headings of this level.
fn tables(page: &mut String, level: &str, has_reader: bool) {
    let mut section = "";
    for metric in Metric::ALL.iter().filter(|m| m.has_reader() == has_reader) {
        let d = metric.definition();
        if d.section != section {
            section = d.section;
            *page += &format!(
                "\n{level} {section}\n\n| metric | kind | labels | what it measures | TS 28.552 |\n| --- | --- | --- | --- | --- |\n"
            );
        }
        let kind = match d.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let unit = match d.unit {
            Unit::None => "",
            Unit::Seconds => ", seconds",
            Unit::Bytes => ", octets",
        };
        let labels: Vec<String> = d.labels.iter().map(|l| format!("`{l}`")).collect();
        let (name, labels, help, clause) = (d.name, labels.join(", "), d.help, d.clause);
        *page += &format!("| `{name}` | {kind}{unit} | {labels} | {help} | {clause} |\n");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    use super::super::readers::METRICS_WITH_READERS;
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// The files below a folder whose names end so.
    fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                files(&path, ends, found);
            } else if ends.iter().any(|end| name.ends_with(end)) && name != "CHANGELOG.md" {
                found.push(path);
            }
        }
    }

    /// The words of a text that begin as the names of metrics do, each with what stands before and behind it.
    fn words(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
        text.match_indices("whimbrel_").map(|(at, _)| {
            let (before, rest) = text.split_at(at);
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let (word, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
            (before, word, behind)
        })
    }

    #[test] // Prometheus naming: base units, `_total` for counters, `_seconds` and `_bytes` last
    fn names_end_in_unit_and_total_and_are_unique() {
        let mut names = BTreeSet::new();
        for metric in Metric::ALL {
            let d = metric.definition();
            let unit = match d.unit {
                Unit::None => "",
                Unit::Seconds => "_seconds",
                Unit::Bytes => "_bytes",
            };
            let end = format!("{unit}{}", if d.kind == MetricKind::Counter { "_total" } else { "" });
            let bare =
                d.name.strip_suffix(end.as_str()).unwrap_or_else(|| panic!("{} has to end in {end}", d.name));
            for word in ["total", "seconds", "bytes", "octets", "us", "ms", "ns", "mib"] {
                assert!(bare.split('_').all(|part| part != word), "{}: `{word}`", d.name);
            }
            assert!(names.insert(d.name), "{} is named twice", d.name);
            assert!(d.help.ends_with('.') && d.help.len() > 12, "{}: {}", d.name, d.help);
            assert!(d.labels.len() <= 1 || d.source == MetricSource::Procedures, "{}", d.name);
        }
    }

    #[test]
    fn the_reference_page_is_that_of_the_table() {
        let written = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
        assert!(written == page(), "regenerate it: whimbrel metrics --all >docs/metrics.md");
    }

    #[test]
    fn no_source_of_the_program_names_a_metric_but_the_table() {
        let (mut sources, mut used) = (Vec::new(), BTreeSet::<Metric>::new());
        for folder in ["node/src", "api/src", "programs/whimbrel/src"] {
            files(&root().join(folder), &[".rs"], &mut sources);
        }
        let is_list = |f: &Path| f.ends_with("table.rs") || f.ends_with("metrics/readers.rs");
        for file in sources.iter().filter(|f| !is_list(f)) {
            let text = std::fs::read_to_string(file).unwrap();
            used.extend(Metric::ALL.iter().filter(|m| text.contains(&format!("Metric::{m:?}"))).copied());
            if file.ends_with("observation/metrics.rs") {
                continue; // its tests show the text format
            }
            for (before, word, _) in words(&text) {
                let literal = before.rsplit('\n').next().unwrap_or_default().contains('"');
                assert!(!(literal && is_metric(word)), "{}: {word}", file.display());
            }
        }
        let unused: Vec<_> = Metric::ALL.iter().filter(|m| !used.contains(m)).collect();
        assert!(unused.is_empty(), "{unused:?} have no readings");
    }

    #[test]
    fn documents_and_scripts_name_metrics_that_exist() {
        let mut all = vec![root().join("README.md")];
        for folder in ["docs", "tests", "node", "api", "programs", "packaging"] {
            files(&root().join(folder), &[".md", ".sh", ".py", ".awk", ".yml", ".json"], &mut all);
        }
        let mut found = 0;
        for file in all {
            let text = std::fs::read_to_string(&file).unwrap();
            for (before, word, behind) in words(&text) {
                // Crates have such names too; and "…_total" goes on from the name before it.
                if behind.starts_with("::") || before.ends_with(['/', '.', '-']) || word.ends_with('_') {
                    continue;
                }
                found += 1;
                assert!(is_metric(word), "{}: there is no metric {word}", file.display());
            }
        }
        assert!(found > 100, "{found} names were found");
    }

    #[test]
    fn a_metric_is_listed_as_read_exactly_if_something_names_it() {
        let mut texts = vec![
            root().join("README.md"),
            root().join("packaging/prometheus/whimbrel.rules.yml"), // not the rules' tests
        ];
        files(&root().join("packaging/grafana"), &[".json"], &mut texts);
        files(&root().join("docs"), &[".md"], &mut texts);
        // Not this page itself, the other generated pages, and the design notes.
        let is_reader = |f: &Path| {
            !["docs/metrics.md", "docs/conformance.md"].iter().any(|page| f.ends_with(page))
                && !["docs/reference", "docs/design", "docs/conformance"]
                    .iter()
                    .any(|at| f.starts_with(root().join(at)))
        };
        let mut named = BTreeSet::new();
        for file in texts.iter().filter(|f| is_reader(f)) {
            let text = std::fs::read_to_string(file).unwrap();
            let all = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let all = all.filter(|word| word.starts_with("whimbrel_") || word.starts_with("process_"));
            named.extend(all.filter_map(metric_named));
        }
        // The console, `why` and the API read values where they stand; commands ask for a metric.
        let (mut api, mut commands) = (Vec::new(), Vec::new());
        files(&root().join("api/src"), &[".rs"], &mut api);
        files(&root().join("programs/whimbrel/src"), &[".rs"], &mut commands);
        let is_of_tests =
            |f: &Path| f.ends_with("tests.rs") || f.components().any(|c| c.as_os_str() == "tests");
        api.retain(|f| !is_of_tests(f));
        let by_variant: BTreeMap<_, _> = Metric::ALL.iter().map(|m| (format!("{m:?}"), *m)).collect();
        let ways = api.iter().map(|f| (f, &[".value(", ".sample("][..]));
        for (file, ways) in ways.chain(commands.iter().map(|f| (f, &[""][..]))) {
            let text = std::fs::read_to_string(file).unwrap();
            for (at, path) in text.match_indices("Metric::") {
                let variant = text[at + path.len()..].split(|c: char| !c.is_ascii_alphanumeric()).next();
                if ways.iter().any(|way| text[..at].ends_with(way)) {
                    named.extend(variant.and_then(|name| by_variant.get(name)));
                }
            }
        }
        let listed: BTreeSet<Metric> = METRICS_WITH_READERS.iter().copied().collect();
        let added: Vec<_> = named.difference(&listed).collect();
        let gone: Vec<_> = listed.difference(&named).collect();
        assert!(
            added.is_empty(),
            "these have a reader: add them to readers.rs, then ./x reference: {added:?}"
        );
        assert!(
            gone.is_empty(),
            "nothing names these: take them out of readers.rs, then ./x reference: {gone:?}"
        );
        assert!(METRICS_WITH_READERS.is_sorted(), "the order is that of the table");
        let pages = (page(), page_of_read_metrics());
        for metric in Metric::ALL {
            let row = format!("| `{}` |", metric.name());
            assert_eq!(pages.0.matches(&row).count(), 1, "{row}");
            assert_eq!(pages.1.contains(&row), metric.has_reader(), "{row}");
        }
    }

    fn is_metric(word: &str) -> bool {
        metric_named(word).is_some()
    }

    /// The metric of this name, or of which this is a series.
    fn metric_named(word: &str) -> Option<Metric> {
        let bare =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
        Metric::ALL.iter().copied().find(|m| m.name() == word || m.name() == bare)
    }
}
