//! The keys that an operator sets: those that say what the network is, where its parts are and what is kept. Each other key has a default
//! that fits nearly every network; `whimbrel config --all` and the reference have them.

/// Their paths. A path that names a section or a list stands for the section itself, without the keys in it.
pub(super) const OPERATOR_KEYS: [&str; 65] = [
    "plmn",
    "tacs",
    "registration_areas",
    "slices",
    "amf.name",
    "amf.region",
    "amf.set",
    "amf.pointer",
    "amf.network_name_full",
    "amf.network_name_short",
    "amf.time_zone",
    "access.emergency.service",
    "data_networks[].dnn",
    "data_networks[].ipv4_pool",
    "data_networks[].ipv6_pool",
    "data_networks[].dns",
    "data_networks[].p_cscf",
    "data_networks[].mtu",
    "data_networks[].n6_interface",
    "data_networks[].n6_routers",
    "data_networks[].firewall.on",
    "data_networks[].firewall.nat_pool",
    "home_network_keys",
    "n2.addresses",
    "n2.sctp",
    "n2.gnbs",
    "n3.address",
    "n3.io",
    "n3.threads",
    "n3.gnb_networks",
    "n4.node_id",
    "n4.listen",
    "n4.smfs",
    "n4.peers",
    "n6.nat",
    "n6.allow",
    "n6.deny",
    "upfs",
    "cluster.listen",
    "cluster.key_file",
    "cluster.region",
    "cluster.other_regions",
    "cluster.etcd",
    "cluster.cta",
    "unit.enabled",
    "unit.directory",
    "unit.upgrade_key",
    "packet_logger.address",
    "packet_logger.key_file",
    "store.path",
    "store.key_file",
    "store.keep_ues",
    "store.postgres",
    "store.postgres_password_file",
    "store.postgres_ca_file",
    "store.sqn_slot",
    "api.address",
    "api.second_factor",
    "audit.keep_days",
    "audit.mirror",
    "log.level",
    "log.format",
    "log.supi",
    "otlp.endpoint",
    "limits.ues",
];

/// True if the path of a key, or of a section or a list, is one of [`OPERATOR_KEYS`] or leads to one.
pub(super) fn leads_to_operator_key(path: &str) -> bool {
    let path = without_indices(path);
    let is_below = |key: &str| {
        key.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    OPERATOR_KEYS.iter().any(|key| is_below(key))
}

/// True for the path of an operator's key itself.
pub(super) fn is_operator_key(path: &str) -> bool {
    OPERATOR_KEYS.contains(&without_indices(path).as_str())
}

/// A path with `[]` in place of each index of a list.
fn without_indices(path: &str) -> String {
    let mut kept = String::new();
    let mut is_index = false;
    for c in path.chars() {
        is_index = is_index && c != ']';
        if !is_index {
            kept.push(c);
        }
        is_index |= c == '[';
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_the_keys_below_it_and_to_no_key_of_a_longer_name() {
        assert!(leads_to_operator_key("n2") && leads_to_operator_key("data_networks[3].firewall"));
        assert!(is_operator_key("data_networks[12].dnn") && !is_operator_key("data_networks"));
        assert!(!leads_to_operator_key("n") && !leads_to_operator_key("n2.addresses_of"));
    }
}
