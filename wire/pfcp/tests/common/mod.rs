//! One of each message, with every element that this crate writes somewhere among them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{Qfi, SNssai, Seid, Teid};
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;

const V4: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 1, 0, 0, 0, 0);
const GNB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);

fn node() -> NodeId {
    NodeId::Ipv4(Ipv4Addr::LOCALHOST)
}

fn internet() -> Option<NetworkInstance> {
    NetworkInstance::new("internet")
}

pub(crate) fn usage_report() -> UsageReport {
    UsageReport {
        start_time: Some(NtpTime(3_900_000_000)),
        end_time: Some(NtpTime(3_900_000_060)),
        volume_measurement: Some(VolumeMeasurement {
            total: Some(300),
            ul: Some(100),
            dl: Some(200),
            total_packets: Some(3),
            ul_packets: Some(1),
            dl_packets: Some(2),
        }),
        duration_measurement: Some(DurationMeasurement(60)),
        time_of_first_packet: Some(NtpTime(3_900_000_001)),
        time_of_last_packet: Some(NtpTime(3_900_000_059)),
        usage_information: Some(UsageInformation::BEF),
        query_urr_reference: Some(QueryUrrReference(9)),
        application_detection_information: Some(ApplicationDetectionInformation {
            application_id: ApplicationId("video".into()),
        }),
        event_time_stamps: vec![NtpTime(3_900_000_002), NtpTime(3_900_000_003)],
        ..UsageReport::new(UrrId(1), UrSeqn(0), UsageReportTrigger::VOLTH | UsageReportTrigger::TERMR)
    }
}

/// The request that an SMF sends for an IPv4v6 session whose addresses and tunnel the UPF chooses.
pub(crate) fn establishment() -> SessionEstablishmentRequest {
    let both = |destination| UeIpAddress {
        destination,
        ipv4: Some(Choice::Choose),
        ipv6: Some(Choice::Choose),
        ..UeIpAddress::default()
    };
    let uplink = CreatePdr {
        outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIpv4.into()),
        urr_ids: vec![UrrId(1)],
        qer_ids: vec![QerId(1)],
        ..CreatePdr::new(
            PdrId(1),
            Precedence(255),
            Pdi {
                f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(5) }),
                network_instance: internet(),
                ue_ip_addresses: vec![both(false)],
                qfis: vec![Qfi::new(1).unwrap()],
                framed_routes: vec![FramedRoute::new(Ipv4Addr::new(192, 168, 7, 0), 24).unwrap()],
                framed_ipv6_routes: vec![FramedIpv6Route::new("2001:db8:99::".parse().unwrap(), 48).unwrap()],
                source_interface_type: Some(InterfaceType::N3),
                ..Pdi::from(SourceInterface::Access)
            },
            FarId(1),
        )
    };
    let downlink = CreatePdr {
        urr_ids: vec![UrrId(1)],
        qer_ids: vec![QerId(1)],
        ..CreatePdr::new(
            PdrId(2),
            Precedence(255),
            Pdi {
                network_instance: internet(),
                ue_ip_addresses: vec![both(true)],
                sdf_filters: vec![SdfFilter::flow("permit out ip from any to assigned")],
                ..Pdi::from(SourceInterface::Core)
            },
            FarId(2),
        )
    };
    SessionEstablishmentRequest {
        create_pdrs: vec![uplink, downlink],
        create_fars: vec![
            CreateFar::forward(
                FarId(1),
                ForwardingParameters {
                    network_instance: internet(),
                    ..ForwardingParameters::to(DestinationInterface::Core)
                },
            ),
            CreateFar {
                bar_id: Some(BarId(1)),
                ..CreateFar::action(FarId(2), ApplyAction::BUFF | ApplyAction::NOCP)
            },
        ],
        create_urrs: vec![CreateUrr {
            measurement_period: Some(MeasurementPeriod(300)),
            volume_threshold: Some(Volume { total: Some(1 << 30), ul: None, dl: Some(1 << 29) }),
            volume_quota: Some(Volume { total: Some(1 << 31), ul: Some(7), dl: None }),
            time_threshold: Some(TimeThreshold(600)),
            time_quota: Some(TimeQuota(1200)),
            quota_holding_time: Some(QuotaHoldingTime(30)),
            measurement_information: Some(MeasurementInformation::MNOP),
            event_threshold: Some(EventThreshold(11)),
            event_quota: Some(EventQuota(12)),
            ..CreateUrr::new(
                UrrId(1),
                MeasurementMethod::VOLUM | MeasurementMethod::DURAT | MeasurementMethod::EVENT,
                ReportingTriggers::PERIO | ReportingTriggers::VOLTH | ReportingTriggers::QUVTI,
            )
        }],
        create_qers: vec![CreateQer {
            mbr: Some(QerBitRate { ul_kbps: 1_000_000, dl_kbps: 2_000_000 }),
            gbr: Some(QerBitRate { ul_kbps: 5, dl_kbps: 6 }),
            qfi: Qfi::new(1),
            rqi: Some(Rqi::RQI),
            paging_policy_indicator: Some(PagingPolicyIndicator(3)),
            averaging_window: Some(AveragingWindow(2000)),
            qer_correlation_id: Some(QerCorrelationId(77)),
            ..CreateQer::new(QerId(1))
        }],
        create_bars: vec![CreateBar {
            bar_id: BarId(1),
            downlink_data_notification_delay: Some(DownlinkDataNotificationDelay(2)),
            suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(64)),
        }],
        create_traffic_endpoints: vec![CreateTrafficEndpoint {
            traffic_endpoint_id: TrafficEndpointId(1),
            local_f_teid: Some(FTeid::Choose { ipv4: true, ipv6: true, choose_id: None }),
            network_instance: internet(),
            ue_ip_addresses: vec![both(false)],
        }],
        pdn_type: Some(PdnType::Ipv4v6),
        user_plane_inactivity_timer: Some(UserPlaneInactivityTimer(60)),
        user_id: Some(UserId {
            imsi: Some("imsi-999700000000001".parse().unwrap()),
            imei: whimbrel_ids::Pei::from_digits([3; 16]),
        }),
        apn_dnn: Some("internet.mnc070".parse().unwrap()),
        s_nssai: Some(SNssai::new(1, Some(0xabcdef))),
        pfcpsereq_flags: Some(SessionEstablishmentFlags::RESTI),
        ..SessionEstablishmentRequest::new(
            node(),
            FSeid { seid: Seid(0x1122_3344_5566_7788), ipv4: Some(GNB), ipv6: Some(V6) },
        )
    }
}

fn modification() -> SessionModificationRequest {
    SessionModificationRequest {
        cp_f_seid: Some(FSeid::new(Seid(5), GNB.into())),
        remove_pdrs: vec![RemovePdr { pdr_id: PdrId(3) }],
        remove_fars: vec![RemoveFar { far_id: FarId(3) }],
        remove_urrs: vec![RemoveUrr { urr_id: UrrId(3) }],
        remove_qers: vec![RemoveQer { qer_id: QerId(3) }],
        remove_bars: vec![RemoveBar { bar_id: BarId(1) }],
        remove_traffic_endpoints: vec![RemoveTrafficEndpoint { traffic_endpoint_id: TrafficEndpointId(2) }],
        create_pdrs: establishment().create_pdrs,
        create_fars: establishment().create_fars,
        create_urrs: establishment().create_urrs,
        create_qers: establishment().create_qers,
        update_pdrs: vec![UpdatePdr {
            precedence: Some(Precedence(9)),
            far_id: Some(FarId(2)),
            pdi: Some(Pdi {
                f_teid: Some(FTeid::given(Teid(7), GNB.into())),
                ue_ip_addresses: vec![UeIpAddress {
                    ipv4: Some(Choice::Given(V4)),
                    ipv6: Some(Choice::Given(V6)),
                    ipv6_prefix_delegation_bits: Some(8),
                    ipv6_prefix_length: Some(56),
                    destination: false,
                }],
                sdf_filters: vec![SdfFilter {
                    flow_description: Some("permit out 17 from 10.0.0.0/8 53 to assigned".into()),
                    tos_traffic_class: Some([0xb8, 0xfc]),
                    security_parameter_index: Some(0x01020304),
                    flow_label: Some(0xabcde),
                    filter_id: Some(1),
                }],
                application_id: Some(ApplicationId("video".into())),
                ..Pdi::from(SourceInterface::Access)
            }),
            ..UpdatePdr::new(PdrId(1))
        }],
        update_fars: vec![UpdateFar {
            apply_action: Some(ApplyAction::FORW),
            update_forwarding_parameters: Some(UpdateForwardingParameters {
                destination_interface: Some(DestinationInterface::Access),
                network_instance: NetworkInstance::new("access"),
                outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(0xdead_beef), GNB.into())),
                transport_level_marking: Some(TransportLevelMarking { value: 0xb8, mask: 0xfc }),
                pfcpsmreq_flags: Some(SessionModificationFlags::SNDEM),
                ..UpdateForwardingParameters::new()
            }),
            ..UpdateFar::new(FarId(2))
        }],
        update_urrs: vec![UpdateUrr {
            volume_quota: Some(Volume { total: Some(5), ..Volume::default() }),
            event_threshold: Some(EventThreshold(13)),
            event_quota: Some(EventQuota(14)),
            ..UpdateUrr::new(UrrId(1))
        }],
        update_qers: vec![UpdateQer {
            gate_status: Some(GateStatus { ul: Gate::Closed, dl: Gate::Open }),
            ..UpdateQer::new(QerId(1))
        }],
        update_traffic_endpoints: vec![UpdateTrafficEndpoint {
            traffic_endpoint_id: TrafficEndpointId(1),
            local_f_teid: None,
            network_instance: internet(),
            ue_ip_addresses: vec![],
        }],
        update_bars: vec![UpdateBar {
            bar_id: BarId(1),
            downlink_data_notification_delay: None,
            suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(3)),
        }],
        pfcpsmreq_flags: Some(SessionModificationFlags::DROBU | SessionModificationFlags::QAURR),
        query_urrs: vec![QueryUrr { urr_id: UrrId(1) }],
        user_plane_inactivity_timer: Some(UserPlaneInactivityTimer(10)),
        query_urr_reference: Some(QueryUrrReference(4)),
        ..SessionModificationRequest::default()
    }
}

const LOAD: LoadControlInformation =
    LoadControlInformation { sequence_number: SequenceNumber(7), metric: Metric(42) };
const OVERLOAD: OverloadControlInformation = OverloadControlInformation {
    sequence_number: SequenceNumber(8),
    metric: Metric(10),
    period_of_validity: PackedTimer::from_seconds(60),
};

/// An application by flows, and one by names.
fn pfds() -> PfdManagementRequest {
    let name = |name: &str, protocol: Option<&str>| PfdDomainName {
        name: name.into(),
        protocol: protocol.map(Into::into),
    };
    let by_flows = PfdContents {
        flow_descriptions: vec![
            "permit out 6 from 192.0.2.0/24 443 to assigned".into(),
            "permit out 17 from 192.0.2.0/24 443 to assigned".into(),
        ],
        ..PfdContents::default()
    };
    let by_names = PfdContents {
        urls: vec!["http://video.example/a".into(), "http://video.example/b".into()],
        domain_names: vec![
            name("video.example", Some("DNS_QNAME")),
            name("*.video.example", Some("TLS_SNI")),
        ],
        custom: Some([1, 2, 3].into()),
        ..PfdContents::default()
    };
    let contexts = [by_flows, by_names].map(|c| PfdContext { pfd_contents: vec![c] });
    PfdManagementRequest {
        applications: vec![
            ApplicationPfds { application_id: ApplicationId("video".into()), pfd_contexts: contexts.into() },
            ApplicationPfds { application_id: ApplicationId("gone".into()), pfd_contexts: vec![] },
        ],
        node_id: Some(node()),
    }
}

/// Every message, with the SEID that its header carries.
pub(crate) fn all() -> Vec<(Option<Seid>, Message)> {
    let recovery_time_stamp = RecoveryTimeStamp(3_900_000_000);
    let up = Some(UpFunctionFeatures::FTUP | UpFunctionFeatures::EMPU | UpFunctionFeatures::UEIP);
    let cp = Some(CpFunctionFeatures::BUNDL);
    let resource = vec![UserPlaneIpResourceInformation {
        teid_range: Some((0xa0, 3)),
        ipv4: Some(GNB),
        ipv6: Some(V6),
        network_instance: internet(),
        source_interface: Some(SourceInterface::Access),
    }];
    let created = CreatedPdr {
        pdr_id: PdrId(1),
        local_f_teid: Some(FTeid::given(Teid(0x0102_0304), GNB.into())),
        ue_ip_addresses: vec![UeIpAddress { ipv4: Some(Choice::Given(V4)), ..UeIpAddress::default() }],
    };
    let seid = Some(Seid(0x0102_0304_0506_0708));
    let peers =
        vec![RemoteGtpuPeer { ipv4: Some(GNB), ipv6: None }, RemoteGtpuPeer { ipv4: None, ipv6: Some(V6) }];
    vec![
        (None, HeartbeatRequest { recovery_time_stamp }.into()),
        (None, HeartbeatResponse { recovery_time_stamp }.into()),
        (None, PfdManagementRequest::default().into()),
        (None, pfds().into()),
        (
            None,
            PfdManagementResponse {
                cause: Cause::ServiceNotSupported,
                offending_ie: Some(OffendingIe(61)),
                node_id: Some(node()),
            }
            .into(),
        ),
        (
            None,
            AssociationSetupRequest {
                announced_pools: None,
                smf_set_id: Some(SmfSetId("set2-1.smfset.5gc.mnc070.mcc999.3gppnetwork.org".into())),
                node_id: NodeId::Fqdn("smf.5gc.mnc070.mcc999.3gppnetwork.org".into()),
                recovery_time_stamp,
                up_function_features: None,
                cp_function_features: cp,
                user_plane_ip_resource_information: vec![],
                session_retention_information: Some(SessionRetentionInformation {
                    cp_pfcp_entity_ip_addresses: vec![CpPfcpEntityIpAddress(RemoteGtpuPeer {
                        ipv4: Some(GNB),
                        ipv6: None,
                    })],
                }),
                alternative_smf_ip_addresses: vec![IpAddr::from(GNB).into(), IpAddr::from(V6).into()],
            }
            .into(),
        ),
        (
            None,
            AssociationSetupResponse {
                node_id: NodeId::Ipv6(Ipv6Addr::LOCALHOST),
                cause: Cause::RequestAccepted,
                recovery_time_stamp,
                up_function_features: up,
                cp_function_features: None,
                user_plane_ip_resource_information: resource,
                pfcpasrsp_flags: Some(AssociationSetupResponseFlags::PSREI),
                announced_pools: Some(AnnouncedPools(vec![
                    AnnouncedPool { address: V4.into(), length: 16 },
                    AnnouncedPool { address: V6.into(), length: 48 },
                ])),
            }
            .into(),
        ),
        (
            None,
            AssociationUpdateRequest {
                node_id: node(),
                up_function_features: up,
                cp_function_features: None,
                pfcp_association_release_request: Some(whimbrel_pfcp::ie::AssociationReleaseRequest::SARR),
                graceful_release_period: Some(PackedTimer(0x21)),
                user_plane_ip_resource_information: vec![],
                alternative_smf_ip_addresses: vec![IpAddr::from(GNB).into(), IpAddr::from(V6).into()],
            }
            .into(),
        ),
        (
            None,
            AssociationUpdateResponse {
                node_id: node(),
                cause: Cause::RequestRejected,
                up_function_features: None,
                cp_function_features: cp,
            }
            .into(),
        ),
        (None, whimbrel_pfcp::msg::AssociationReleaseRequest { node_id: node() }.into()),
        (None, AssociationReleaseResponse { node_id: node(), cause: Cause::RequestAccepted }.into()),
        (None, VersionNotSupportedResponse {}.into()),
        (
            None,
            NodeReportRequest {
                node_id: node(),
                node_report_type: NodeReportType::UPFR | NodeReportType::UPRR,
                user_plane_path_failure_report: Some(UserPlanePathFailureReport {
                    remote_gtpu_peers: peers.clone(),
                }),
                user_plane_path_recovery_report: Some(UserPlanePathRecoveryReport {
                    remote_gtpu_peers: peers,
                }),
            }
            .into(),
        ),
        (
            None,
            NodeReportResponse {
                node_id: node(),
                cause: Cause::MandatoryIeMissing,
                offending_ie: Some(OffendingIe(101)),
            }
            .into(),
        ),
        (Some(Seid(0)), establishment().into()),
        (
            seid,
            SessionEstablishmentResponse {
                up_f_seid: Some(FSeid::new(Seid(1), GNB.into())),
                created_pdrs: vec![created.clone()],
                created_traffic_endpoints: vec![CreatedTrafficEndpoint {
                    traffic_endpoint_id: TrafficEndpointId(1),
                    local_f_teid: created.local_f_teid,
                    ue_ip_addresses: created.ue_ip_addresses.clone(),
                }],
                failed_rule_id: Some(FailedRuleId::Far(FarId(1))),
                load_control_information: Some(LOAD),
                overload_control_information: Some(OVERLOAD),
                ..SessionEstablishmentResponse::new(node(), Cause::RequestAccepted)
            }
            .into(),
        ),
        (seid, modification().into()),
        (
            seid,
            SessionModificationResponse {
                overload_control_information: Some(OVERLOAD),
                usage_reports: vec![usage_report()],
                failed_rule_id: Some(FailedRuleId::Pdr(PdrId(2))),
                offending_ie: Some(OffendingIe(9)),
                ..SessionModificationResponse::new(Cause::RuleCreationModificationFailure)
            }
            .into(),
        ),
        (seid, SessionDeletionRequest {}.into()),
        (
            seid,
            SessionDeletionResponse {
                load_control_information: Some(LOAD),
                usage_reports: vec![usage_report(), usage_report()],
                ..SessionDeletionResponse::new(Cause::RequestAccepted)
            }
            .into(),
        ),
        (
            seid,
            SessionReportRequest {
                downlink_data_report: Some(DownlinkDataReport {
                    pdr_ids: vec![PdrId(2)],
                    downlink_data_service_information: vec![DataServiceInformation {
                        paging_policy_indication: Some(0x2e),
                        qfi: Qfi::new(1),
                    }],
                    dl_data_packets_size: Some(DlDataPacketsSize(84)),
                    data_status: Some(DataStatus::BUFF),
                }),
                load_control_information: Some(LOAD),
                overload_control_information: Some(OVERLOAD),
                old_cp_f_seid: Some(FSeid::new(Seid(5), GNB.into())),
                usage_reports: vec![usage_report()],
                error_indication_report: Some(ErrorIndicationReport {
                    remote_f_teids: vec![FTeid::given(Teid(9), GNB.into())],
                }),
                ..SessionReportRequest::new(ReportType::DLDR | ReportType::USAR | ReportType::ERIR)
            }
            .into(),
        ),
        (
            seid,
            SessionReportResponse {
                update_bar: Some(UpdateBarInReportResponse {
                    bar_id: BarId(1),
                    downlink_data_notification_delay: Some(DownlinkDataNotificationDelay(1)),
                    dl_buffering_duration: Some(PackedTimer(5)),
                    suggested_buffering_packets_count: None,
                }),
                pfcpsrrsp_flags: Some(SessionReportResponseFlags::DROBU),
                ..SessionReportResponse::new(Cause::RequestAccepted)
            }
            .into(),
        ),
    ]
}
