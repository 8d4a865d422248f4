//! CONFIGURATION UPDATE COMMAND and COMPLETE.

use crate::codec::message;
use crate::ie::*;

message! {
    /// CONFIGURATION UPDATE COMMAND, from the network (TS 24.501 §8.2.19).
    ConfigurationUpdateCommand {}
    optional {
        0xD0 "Configuration update indication" update_indication: ConfigurationUpdateIndication => tv1,
        0x77 "5G-GUTI" guti: MobileIdentity => tlve,
        0x54 "TAI list" tai_list: TaiList => tlv,
        0x15 "Allowed NSSAI" allowed_nssai: Nssai => tlv,
        0x27 "Service area list" service_area_list: ServiceAreaList => tlv,
        0x43 "Full name for network" full_name: NetworkName => tlv,
        0x45 "Short name for network" short_name: NetworkName => tlv,
        0x46 "Local time zone" local_time_zone: TimeZone => tv(1),
        0x47 "Universal time and local time zone" universal_time: UniversalTime => tv(7),
        0x49 "Network daylight saving time" daylight_saving: DaylightSaving => tlv,
        0x79 "LADN information" ladn_information: LadnInformation => tlve,
        0xB0 "MICO indication" mico_indication: MicoIndication => tv1,
        0x90 "Network slicing indication" network_slicing_indication: NetworkSlicingIndication => tv1,
        0x31 "Configured NSSAI" configured_nssai: Nssai => tlv,
        0x11 "Rejected NSSAI" rejected_nssai: RejectedNssai => tlv,
        0x76 "Operator-defined access category definitions"
            operator_access_categories: OperatorAccessCategories => tlve,
        0xF0 "SMS indication" sms_indication: SmsIndication => tv1,
        0x6C "T3447 value" t3447: GprsTimer3 => tlv,
        0x75 "CAG information list" cag_information_list: LongOpaque => tlve,
        0x67 "UE radio capability ID" radio_capability_id: Opaque => tlv,
        0xA0 "UE radio capability ID deletion indication"
            radio_capability_id_deletion: RadioCapabilityIdDeletion => tv1,
        0x44 "5GS registration result" registration_result: RegistrationResult => tlv,
        0x1B "Truncated 5G-S-TMSI configuration" truncated_s_tmsi: Opaque => tlv,
        0xC0 "Additional configuration indication"
            additional_configuration: AdditionalConfigurationIndication => tv1,
        0x68 "Extended rejected NSSAI" extended_rejected_nssai: Opaque => tlv,
        0x72 "Service-level-AA container" service_level_aa_container: LongOpaque => tlve,
        0x70 "NSSRG information" nssrg_information: LongOpaque => tlve,
        0x14 "Disaster roaming wait range" disaster_roaming_wait_range: [u8; 2] => tlv,
        0x2C "Disaster return wait range" disaster_return_wait_range: [u8; 2] => tlv,
        0x13 "List of PLMNs to be used in disaster condition" disaster_plmns: Opaque => tlv,
        0x71 "Extended CAG information list" extended_cag_information_list: LongOpaque => tlve,
        0x1F "Updated PEIPS assistance information" updated_peips_assistance: Opaque => tlv,
        0x73 "NSAG information" nsag_information: LongOpaque => tlve,
        0xE0 "Priority indicator" priority_indicator: PriorityIndicator => tv1,
    }
}

message! {
    /// CONFIGURATION UPDATE COMPLETE, from the UE (TS 24.501 §8.2.20).
    ConfigurationUpdateComplete {}
    optional {}
}
