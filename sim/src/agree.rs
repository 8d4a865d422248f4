//! UEs, gNBs, the core and the UPFs have the same state once nothing is in flight.
//!
//! | node | agrees with | on |
//! | --- | --- | --- |
//! | UE | AMF | 5GMM state, 5G-GUTI, registration area, allowed NSSAI, ngKSI, keys and NAS COUNTs, connection |
//! | UE | SMF | sessions: type, addresses, names, session AMBR, QoS flows and rules, whether packets flow |
//! | gNB | AMF | contexts: both names of the connection, the UE, whether it is set up |
//! | gNB | SMF | sessions whose packets flow: both ends of the tunnel, QoS flows |
//! | UPF | SMF | sessions, and where their downlink packets go |
//! | replicas | primary | the clock of the state; nothing is left in logs |
//! | peer AMF | AMF | which of them has the UE; the other one has no context of it |

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::IpAddr;

use whimbrel_control::config::Config;
use whimbrel_control::smf::{SmContext, UpState};
use whimbrel_control::{AssociationId, UeContext};
use whimbrel_ids::{AmfUeNgapId, Guami, Guti, PduSessionId, Qfi, RanUeNgapId, Supi, Teid};
use whimbrel_nas::ie::TaiList;
use whimbrel_ran::gnb::{ServedSession, ServedUe};
use whimbrel_ran::ue::{MmState, SessionInfo, SuciSource, Ue};
use whimbrel_security::{NasSecurityContext, SecurityHeaderType};

use crate::{GnbIndex, Sim, UeIndex};

/// `Err` describes the first difference.
type Agreement = Result<(), String>;

fn difference(what: &str, one: impl Debug, other: impl Debug) -> Agreement {
    Err(format!("{what} differs: {one:?} at the first node, {other:?} at the second"))
}

fn expect_equal<T: PartialEq + Debug>(what: &str, one: T, other: T) -> Agreement {
    if one == other { Ok(()) } else { difference(what, one, other) }
}

/// One of the cores.
struct Core<'a> {
    config: &'a Config,
    ues: Vec<&'a UeContext>,
}

impl Sim {
    /// Checks that all nodes agree; call it only without faults and with no message in flight. UEs that have
    /// lost their power are left out.
    ///
    /// Errors: the first difference that was found, in words.
    pub fn agree(&self) -> Agreement {
        self.user_planes_agree()?;
        let home = Core { config: &self.config, ues: self.contexts().collect() };
        let peer_amf = self.peer_amf.as_ref();
        let peer_amf = peer_amf.map(|a| Core { config: a.cta.config(), ues: a.cta.contexts().collect() });
        let of = |gnb: GnbIndex| match &peer_amf {
            Some(peer_amf) if self.ran.gnbs[gnb.0].peer_amf => (peer_amf, Some(&home)),
            other => (&home, other.as_ref()),
        };
        for (index, terminal) in self.ran.ues.iter().enumerate().filter(|(_, t)| !t.away) {
            let (core, other) = of(terminal.gnb);
            self.ue_agrees(core, UeIndex(index)).map_err(|e| format!("UE {index}: {e}"))?;
            let supi = served_as(&terminal.ue);
            let has_it = |p: &UeContext| supi.is_some() && p.amf.supi == supi;
            if other.is_some_and(|other| other.ues.iter().any(|p| has_it(p))) {
                return Err(format!("UE {index}: the core that does not serve it has a UE context"));
            }
        }
        for index in (0..self.ran.gnbs.len()).map(GnbIndex).filter(|g| self.is_automatic(*g)) {
            self.gnb_agrees(of(index).0, index).map_err(|e| format!("gNB {}: {e}", index.0))?;
        }
        for ue in [Some(&home), peer_amf.as_ref()].into_iter().flatten().flat_map(|core| &core.ues) {
            self.user_plane_agrees(ue).map_err(|e| format!("{:?}: {e}", ue.id))?;
        }
        self.replicas_agree()
    }

    /// True if the gNB runs on its own, not driven by a test.
    fn is_automatic(&self, gnb: GnbIndex) -> bool {
        self.ran.gnbs[gnb.0].by_hand.is_none()
    }

    fn ue_agrees(&self, core: &Core<'_>, index: UeIndex) -> Agreement {
        let ue = self.ue_ref(index);
        let served = served_as(ue);
        let of_it = |p: &&UeContext| served.is_some() && p.amf.supi == served;
        let known: Vec<&UeContext> = core.ues.iter().copied().filter(of_it).collect();
        let context = match (ue.state(), &known[..]) {
            (MmState::Deregistered, []) => return Ok(()),
            (MmState::Registered, [context]) if context.amf.registered => context,
            // A UE may be registered for emergency services without a subscription (TS 23.501 §5.16.4.1).
            (MmState::Registered, []) => {
                let named =
                    |p: &&UeContext| p.amf.tmsi.is_some() && p.amf.tmsi == ue.s_tmsi().map(|t| t.tmsi);
                match core.ues.iter().copied().find(named) {
                    Some(context) if context.amf.emergency && context.amf.registered => context,
                    _ => return Err("registered, but the core has no UE context".into()),
                }
            }
            (state, known) => {
                let registered = known.iter().filter(|p| p.amf.registered).count();
                return Err(format!("{state:?}; {registered} contexts of {} are registered", known.len()));
            }
        };
        if !context.is_idle() {
            return Err("a procedure is still running".into());
        }
        if ue.awaits_session() {
            return Err("it awaits an answer about a session".into()); // T3580 repeats a request that was lost
        }
        self.registration_agrees(core, ue, context)?;
        self.connection_agrees(index, context)?;
        let here: Vec<PduSessionId> = ue.sessions().map(|s| s.id).collect();
        expect_equal(
            "sessions",
            here.iter().copied().collect::<BTreeSet<_>>(),
            context.sessions.keys().copied().collect(),
        )?;
        ue.sessions().zip(ue.sessions().filter_map(|s| context.sessions.get(&s.id))).try_for_each(
            |(info, session)| {
                let flows = session.up == UpState::Active;
                expect_equal("user plane", ue.has_user_plane(info.id), flows)
                    .and_then(|()| session_agrees(info, session))
                    .map_err(|e| format!("session {}: {e}", info.id.value()))
            },
        )
    }

    fn registration_agrees(&self, core: &Core<'_>, ue: &Ue, context: &UeContext) -> Agreement {
        let amf = &context.amf;
        let guami = core.config.amf.guami();
        let of = |(amf_id, tmsi)| Guti { guami: Guami { amf_id, ..guami }, tmsi };
        let names: Vec<_> = amf.gutis(guami.amf_id).map(of).map(Some).collect();
        if !names.contains(&ue.guti()) || ue.guti().is_none() {
            return difference("5G-GUTI", ue.guti(), names);
        }
        let area: TaiList = amf.location.registration_area.iter().copied().collect();
        expect_equal("registration area", ue.registration_area(), &area)?;
        if !amf.emergency {
            // The slice of an emergency is the operator's, and is not sent to the UE (TS 23.501 §5.16.4.3).
            expect_equal("allowed NSSAI", ue.allowed_nssai(), &amf.slices.allowed)?;
        }
        let (Some((ksi, here)), Some(there)) = (ue.security(), &amf.security.current) else {
            return difference("security context", ue.security().is_some(), amf.security.current.is_some());
        };
        expect_equal("ngKSI", Some(ksi), amf.security.ng_ksi)?;
        expect_equal(
            "algorithms",
            (here.ciphering(), here.integrity()),
            (there.ciphering(), there.integrity()),
        )?;
        // The sender may be ahead by lost messages: the receiver accepts the next one all the same.
        let (ours, theirs) = (here.counts(), there.counts());
        let ahead = ours.uplink_next >= theirs.uplink_next && theirs.downlink_next >= ours.downlink_next;
        if !(ahead && accepts_next(here, there) && accepts_next(there, here)) {
            return difference("keys or NAS COUNTs", ours, theirs);
        }
        Ok(())
    }

    fn connection_agrees(&self, index: UeIndex, ue: &UeContext) -> Agreement {
        let at = ue.amf.connection.as_ref().map(|c| self.ran.by_association.get(&c.association).copied());
        let here = self.ue_ref(index).is_connected().then(|| Some(self.gnb_of(index)));
        expect_equal("gNB", here, at)?;
        let Some(connection) = &ue.amf.connection else { return Ok(()) };
        let gnb = self.gnb_of(index);
        if !self.is_automatic(gnb) {
            return Ok(());
        }
        let contexts: Vec<ServedUe> =
            self.ran.gnbs[gnb.0].gnb.served().filter(|c| belongs_to(c, index)).collect();
        let [context] = &contexts[..] else {
            return Err(format!("{} contexts at its gNB", contexts.len()));
        };
        let names = (Some(connection.amf_ue_ngap_id), connection.ran_ue_ngap_id);
        expect_equal("names of the connection", (context.amf_ue_ngap_id, context.ran_ue_ngap_id), names)?;
        expect_equal("context set up", context.set_up, connection.context_set_up)?;
        let address = self.ran.gnbs[gnb.0].gnb.config().gtp_address;
        let tunnels = context.sessions.iter().map(|s| tunnel_at_gnb(address, s)).collect::<BTreeSet<_>>();
        expect_equal("tunnels", tunnels, ue.sessions.values().filter_map(|s| tunnel_at_smf(ue, s)).collect())
    }

    /// Each context of a gNB belongs to a connection that the AMF has; contexts that the AMF has never answered are left out.
    fn gnb_agrees(&self, core: &Core<'_>, index: GnbIndex) -> Agreement {
        let node = &self.ran.gnbs[index.0];
        let Some(association) = node.association else { return Ok(()) };
        let answered = node.gnb.served().filter(|c| c.amf_ue_ngap_id.is_some());
        let at_gnb = answered.map(|c| (c.amf_ue_ngap_id, Some(c.ran_ue_ngap_id)));
        expect_equal("contexts", at_gnb.collect::<BTreeSet<_>>(), contexts_over(core, association))
    }

    fn user_plane_agrees(&self, ue: &UeContext) -> Agreement {
        ue.sessions.values().try_for_each(|session| {
            let Some(up_seid) = session.up_seid else { return Ok(()) };
            let upf = &self.user_plane.upfs[usize::from(session.upf.0)].upf;
            let an = session.an.as_ref().map(|t| (t.address, t.teid));
            let what = format!("downlink of session {}", session.psi.value());
            expect_equal(&what, upf.c.access_tunnels(up_seid), an.into_iter().collect())
        })
    }

    /// Each replica has the UE's newest state, and the CTA's log has nothing left to replay.
    fn replicas_agree(&self) -> Agreement {
        let Some(cluster) = &self.control.cluster else { return Ok(()) };
        for ue in self.contexts() {
            for replica in self.cta().backed_by(ue.id) {
                let clock = cluster.clock_held(replica, ue.id);
                expect_equal(&format!("clock of {:?} at {replica:?}", ue.id), clock, Some(ue.clock))?;
            }
        }
        let backed = self.contexts().all(|p| !self.cta().backed_by(p.id).is_empty());
        if backed { expect_equal("logged inputs and octets", self.cta().logged(), (0, 0)) } else { Ok(()) }
    }
}

/// The SUPI under which a UE is served: of a broker's user the pseudonym of its session.
pub(crate) fn served_as(ue: &Ue) -> Option<Supi> {
    match (&ue.config().suci, ue.sap_session()) {
        (SuciSource::Sap(_), session) => {
            let grant = &session?.grant;
            Supi::from_nai(grant.pseudonym.0, grant.broker.as_str())
        }
        _ => Some(ue.config().supi),
    }
}

fn contexts_over(
    core: &Core<'_>,
    association: AssociationId,
) -> BTreeSet<(Option<AmfUeNgapId>, Option<RanUeNgapId>)> {
    let names = core.ues.iter().flat_map(|p| p.n2_names()).flatten();
    let over = names.filter(|n| n.association == association);
    over.map(|n| (Some(n.amf_ue_ngap_id), n.ran_ue_ngap_id)).collect()
}

fn belongs_to(context: &ServedUe, ue: UeIndex) -> bool {
    context.ue.0 as usize == ue.0
}

/// Whether `to` accepts the next message of `from`.
fn accepts_next(from: &NasSecurityContext, to: &NasSecurityContext) -> bool {
    // Any plain 5GMM message will do: this one is 5GMM STATUS.
    const PLAIN: [u8; 4] = [0x7e, 0, 0x64, 0x6f];
    let (mut from, mut to, mut message, mut plain) = (from.clone(), to.clone(), Vec::new(), Vec::new());
    let header = SecurityHeaderType::IntegrityProtectedAndCiphered;
    from.protect(header, &PLAIN, &mut message).is_ok()
        && to.unprotect(&message, &mut plain).is_ok()
        && plain == PLAIN
}

fn session_agrees(info: &SessionInfo, session: &SmContext) -> Agreement {
    expect_equal("type", info.pdu_session_type, session.session_type)?;
    expect_equal("IPv4 address", info.ipv4, session.address.ipv4)?;
    expect_equal(
        "interface identifier",
        info.interface_id.is_none_or(|i| i == session.address.interface_id),
        true,
    )?;
    expect_equal("DNN", info.dnn.as_ref(), Some(&session.dnn))?;
    expect_equal("S-NSSAI", info.s_nssai, Some(session.s_nssai))?;
    expect_equal("session AMBR", info.ambr_kbps, (session.qos.ambr.dl_kbps, session.qos.ambr.ul_kbps))?;
    let flows: BTreeSet<Qfi> = info.flows.iter().map(|f| f.qfi).collect();
    expect_equal(
        "QoS flows",
        flows,
        info.qfi.into_iter().chain(session.qos.flows.iter().map(|f| f.qfi)).collect(),
    )?;
    let rules = info.rules.iter().filter(|r| !r.default).map(|r| r.id).collect::<BTreeSet<_>>();
    expect_equal("QoS rules", rules, session.qos.flows.iter().flat_map(|f| &f.rules).map(|r| r.id).collect())
}

/// A session's tunnels, downlink and uplink, and how many flows they carry.
type Tunnels = (PduSessionId, (IpAddr, Teid), (IpAddr, Teid), usize);

fn tunnel_at_gnb(address: IpAddr, session: &ServedSession) -> Tunnels {
    (session.id, (address, session.downlink_teid), session.uplink, session.flows.len())
}

fn tunnel_at_smf(ue: &UeContext, session: &SmContext) -> Option<Tunnels> {
    let (an, n3) = (session.an.as_deref()?, ue.uplink_tunnel(session.psi)?);
    Some((session.psi, (an.address, an.teid), (n3.address, n3.teid), 1 + session.qos.flows.len()))
}
