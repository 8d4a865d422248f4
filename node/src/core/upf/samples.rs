//! Counters of the UPF, for the metrics.

use whimbrel_user::{DropReason, FirewallCounters};

use super::LocalUpf;
use crate::cluster::UpfLinks;
use crate::observation::{Metric, MetricSample};

impl LocalUpf {
    /// Its counters, for the metrics.
    pub(in crate::core) fn samples(&self) -> Vec<MetricSample> {
        let c = self.plane.counters();
        let io = self.plane.io_counters();
        let one = |metric, value| MetricSample { metric, label: None, value };
        let mut samples = vec![
            one(Metric::N3UlPackets, c.ul_packets),
            one(Metric::N3UlBytes, c.ul_octets),
            one(Metric::N3DlPackets, c.dl_packets),
            one(Metric::N3DlBytes, c.dl_octets),
            one(Metric::UpfBufferedTotal, c.buffered),
            one(Metric::UpfBuffered, c.held),
            one(Metric::UpfBufferedBytes, c.held_octets),
            one(Metric::GtpuEchoRequests, c.echo_requests),
            one(Metric::GtpuEchoRequestsSent, c.echo_requests_sent),
            one(Metric::GtpuPaths, c.paths),
            one(Metric::GtpuPathsFailed, c.paths_failed),
            one(Metric::GtpuPathsUnsupervised, c.paths_unsupervised),
            one(Metric::GtpuPeersSuspended, c.peers_suspended),
            one(Metric::GtpuErrorIndicationsSent, c.error_indications_sent),
            one(Metric::GtpuErrorIndicationsReceived, c.error_indications_received),
            one(Metric::GtpuEndMarkersSent, c.end_markers_sent),
            one(Metric::UpfCopiesSent, c.copies_sent),
            one(Metric::GtpuEndMarkersReceived, c.end_markers_received),
            one(Metric::GtpuEndMarkersRelayed, c.end_markers_relayed),
            one(Metric::N3Relayed, c.relayed),
            one(Metric::RouterAdvertisements, c.router_advertisements),
            one(Metric::UpfStrays, c.strays),
            one(Metric::UpfEcnMarked, c.ecn_marked),
            one(Metric::UpfFlowCacheL1Hits, c.flows_first),
            one(Metric::UpfFlowCacheL2Hits, c.flows_second),
            one(Metric::UpfFlowCacheMisses, c.flows_asked),
            one(Metric::UpfNamesKnown, c.names_known),
            one(Metric::UpfPredictionsTrue, c.predictions_true),
            one(Metric::UpfPredictionsFalse, c.predictions_false),
            one(Metric::UpfPredictionsFiltered, c.predictions_filtered),
            one(Metric::UpfPredictionsRefused, c.predictions_refused),
            one(Metric::UpfReportsLost, c.reports_lost),
            one(Metric::UpfSessions, c.sessions),
            one(Metric::N4BadMessages, self.bad_messages),
            one(Metric::CaptureLost, self.plane.tapped_lost()),
        ];
        samples.extend([
            one(Metric::N3Received, io.n3_received),
            one(Metric::N3Sent, io.n3_sent),
            one(Metric::N3SentBySocket, io.n3_sent_by_socket),
            one(Metric::N6Received, io.n6_received),
            one(Metric::N6Segmented, io.n6_long),
            one(Metric::N6Sent, io.n6_sent),
            one(Metric::N6SentByDevice, io.n6_sent_by_device),
        ]);
        samples.push(one(Metric::UpfThreadTransfers, io.handed_over));
        let fast = [("uplink", io.fast_uplink), ("downlink", io.fast_downlink)];
        samples.extend(fast.map(|(direction, value)| MetricSample {
            metric: Metric::UpfFastPathPackets,
            label: Some(direction.into()),
            value,
        }));
        samples.push(one(Metric::UpfFastPathSessions, io.fast_sessions));
        let lost = [
            ("fast_no_room", io.fast_no_room),
            ("hand_over_full", io.hand_over_full),
            ("send_full", io.send_full),
            ("send_error", io.send_errors),
            ("receive_full", io.receive_full),
            ("malformed", io.malformed),
        ];
        samples.extend(lost.map(|(reason, value)| MetricSample {
            metric: Metric::UpfIoDropped,
            label: Some(reason.into()),
            value,
        }));
        samples.push(one(Metric::UpfIoReceiveErrors, io.receive_errors));
        samples.extend(self.harvested());
        if self.n4.is_some() || self.unit.is_some() {
            let (c, unit) = (self.n4.as_ref().map(|n4| n4.counters).unwrap_or_default(), self.unit_counters);
            let unsent = self.links.as_ref().map_or(0, UpfLinks::unsent) + unit.unsent;
            samples.extend([
                one(Metric::N4Received, c.received + unit.received),
                one(Metric::N4Sent, c.sent + unit.sent),
                one(Metric::N4Unsent, c.unsent + unsent),
                one(Metric::N4Spoofed, c.impostors),
                one(Metric::N4UnknownPeer, c.unknown_peers),
            ]);
        }
        let mut firewalls: Vec<_> = c.firewalls.iter().flat_map(|b| self.firewall(b)).collect();
        firewalls.sort_by_key(|s| s.metric);
        samples.extend(firewalls);
        samples.extend(DropReason::ALL.iter().map(|&reason| MetricSample {
            metric: Metric::UpfDropped,
            label: Some(reason.name().into()),
            value: c.dropped(reason),
        }));
        samples
    }

    /// What the packet threads' background work has done, and what it found; nothing where it is off.
    fn harvested(&self) -> Vec<MetricSample> {
        let h = self.plane.harvest_counters();
        let one = |metric, value| MetricSample { metric, label: None, value };
        let of = |metric, label: &str, value| MetricSample { metric, label: Some(label.into()), value };
        let mut samples = vec![
            one(Metric::HarvestSurveys, h.surveys),
            one(Metric::HarvestWork, h.work_ns() / 1_000),
            of(Metric::HarvestSessions, "idle", h.places_idle),
            of(Metric::HarvestSessions, "stall", h.places_in_stalls),
            one(Metric::HarvestCost, h.cost_percent()),
        ];
        for (network, usage) in self.networks.iter().zip(&h.usage) {
            let dnn = network.dnn.to_string();
            samples.push(of(Metric::SurveySessions, &dnn, usage.sessions));
            samples.push(of(Metric::SurveyActive, &dnn, usage.active));
            samples.push(of(Metric::SurveyUplink, &dnn, usage.ul_octets));
            samples.push(of(Metric::SurveyDownlink, &dnn, usage.dl_octets));
        }
        samples
    }

    /// The counters of a data network's firewall. A rule is named by its number and its text.
    fn firewall(&self, b: &FirewallCounters) -> Vec<MetricSample> {
        let network = self.networks.get(usize::from(b.dn.0));
        let Some((dnn, firewall)) = network.and_then(|n| Some((&n.dnn, n.firewall.as_ref()?))) else {
            return Vec::new();
        };
        let of = |metric, value| MetricSample { metric, label: Some(dnn.to_string()), value };
        let mut samples = vec![
            of(Metric::FirewallFlows, b.flows),
            of(Metric::FirewallFlowsBegun, b.flows_begun),
            of(Metric::FirewallFlowsEvicted, b.flows_evicted),
            of(Metric::NatPorts, b.ports),
            of(Metric::NatPortsGivenUp, b.ports_given_up),
            of(Metric::NatPackets, b.translated),
        ];
        let rules = firewall.rules.iter().zip(&b.rules).enumerate();
        samples.extend(rules.map(|(i, (rule, value))| MetricSample {
            metric: Metric::FirewallRulePackets,
            label: Some(format!("{dnn} {}: {rule}", i + 1)),
            value: *value,
        }));
        samples
    }
}
