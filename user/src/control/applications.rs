//! PFD management in the UP function: TS 29.244 §6.2.5.3.
//!
//! PFDs apply to the whole UPF, no matter which SMF provisions them. They end with the association of that SMF: then the configuration's
//! definition of the application applies again, or none. Sessions whose rules name an application get its new descriptions
//! some at a time.

use std::sync::Arc;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{Cause, OffendingIe, PfdContents, PfdDomainName};
use whimbrel_pfcp::msg::{ApplicationPfds, PfdManagementRequest, PfdManagementResponse};

use super::replies::ReplyKey;
use super::{Outbox, UpfC};
use crate::applications::{Application, DomainName, DomainNameProtocol, FlowDescriptionError, Pfd};
use crate::event::Event;
use crate::exchange::{Effects, UserPlaneChange};
use crate::limits::{APPLICATIONS_MAX, RENEWED_PER_TICK_MAX};
use crate::rules::{Draft, SessionRules};
use crate::session_id::SessionId;

/// Types of the elements that a refusal names (TS 29.244 table 8.1.2-1).
const APPLICATION_IDS_PFDS: u16 = 58;
const PFD_CONTENTS: u16 = 61;

impl UpfC {
    pub(super) fn manage_pfds(
        &mut self,
        now: Instant,
        key: ReplyKey,
        m: &PfdManagementRequest,
        out: &mut Outbox,
    ) {
        let (cause, offending_ie) = match self.take_pfds(key, m) {
            Ok(changed) => {
                self.applications_touched = true;
                self.renew(&changed);
                out.events.push(Event::PfdsProvisioned { peer: key.peer, applications: changed.len() });
                (Cause::RequestAccepted, None)
            }
            Err((cause, ie)) => (cause, ie),
        };
        let response = PfdManagementResponse {
            cause,
            offending_ie: offending_ie.map(OffendingIe),
            node_id: Some(self.config.node_id.clone()),
        };
        self.answer(now, key, None, &response.into(), out);
    }

    /// Applies a request as a whole; the applications that it changes. Errors: the cause of the answer; nothing is changed then.
    fn take_pfds(
        &mut self,
        key: ReplyKey,
        m: &PfdManagementRequest,
    ) -> Result<Vec<Box<str>>, (Cause, Option<u16>)> {
        let of_peer = self.associations.iter().find(|(_, a)| a.peer.ip() == key.peer.ip());
        let association = of_peer.map(|(_, a)| a.id).ok_or((Cause::NoEstablishedPfcpAssociation, None))?;
        if m.applications.is_empty() {
            let all = self.applications.provisioned(None);
            all.iter().for_each(|id| _ = self.applications.remove(id));
            return Ok(all);
        }
        let definitions = m.applications.iter().map(|a| application(a).map_err(|e| (e.0, Some(e.1))));
        let definitions: Vec<Application> = definitions.collect::<Result<_, _>>()?;
        let new = |a: &&Application| !a.pfds.is_empty() && self.applications.get(&a.id).is_none();
        if self.applications.len() + definitions.iter().filter(new).count() > APPLICATIONS_MAX {
            return Err((Cause::NoResourcesAvailable, Some(APPLICATION_IDS_PFDS)));
        }
        for definition in &definitions {
            if definition.pfds.is_empty() {
                self.applications.remove(&definition.id);
            } else {
                self.applications.provision(association, definition);
            }
        }
        Ok(definitions.into_iter().map(|a| a.id).collect())
    }

    /// An association ends, and with it the PFDs of its SMF.
    pub(super) fn forget_applications(&mut self, association: u32) {
        let gone = self.applications.provisioned(Some(association));
        self.applications_touched |= !gone.is_empty();
        gone.iter().for_each(|id| _ = self.applications.remove(id));
        self.renew(&gone);
    }

    /// Marks the sessions whose rules name one of these: they get its new definition.
    pub(super) fn renew(&mut self, applications: &[Box<str>]) {
        let names = |rules: &SessionRules| rules.applications.iter().any(|a| applications.contains(&a.id));
        let those = self.sessions.iter().filter(|(_, s)| names(&s.rules)).map(|(id, _)| id);
        self.outdated.extend(those);
    }

    /// Gives some of the marked sessions the new definitions of their applications.
    pub(super) fn renew_some(&mut self, out: &mut Outbox) {
        for _ in 0..RENEWED_PER_TICK_MAX {
            let Some(session) = self.outdated.pop_first() else { return };
            let Some(rules) = self.with_present_applications(session) else { continue };
            let rules = Arc::new(rules);
            // This does not confirm a predicted session.
            self.sessions.set_rules(session, Arc::clone(&rules));
            out.changes.push(UserPlaneChange::Put { session, rules, effects: Effects::default() });
        }
    }

    fn with_present_applications(&mut self, session: SessionId) -> Option<SessionRules> {
        // One that stands for a predicted UE alone is seen to when the SMF confirms it.
        let stands = self.sessions.get(session).filter(|s| s.provisional_until.is_none());
        let mut draft = Draft::open(&stands?.rules);
        for named in draft.pdrs.values_mut().filter_map(|p| p.pdr.application.as_mut()) {
            *named = self.applications.now(&named.id);
        }
        // Nothing has come to the rules that could not stand.
        draft.close().ok()
    }
}

/// The definition in a request. Errors: the cause, and the IE that is not understood or too long.
fn application(m: &ApplicationPfds) -> Result<Application, (Cause, u16)> {
    let contents = m.pfd_contexts.iter().flat_map(|c| &c.pfd_contents);
    let pfds =
        contents.map(|c| pfd(c).map_err(|FlowDescriptionError| (Cause::ServiceNotSupported, PFD_CONTENTS)));
    let definition = Application { id: m.application_id.0.clone(), pfds: pfds.collect::<Result<_, _>>()? };
    definition.check().map_err(|_| (Cause::NoResourcesAvailable, APPLICATION_IDS_PFDS))?;
    Ok(definition)
}

/// A PFD. URLs are within TLS, and custom PFD content is known to vendors alone: a PFD that needs either is ignored.
fn pfd(c: &PfdContents) -> Result<Pfd, FlowDescriptionError> {
    if !c.urls.is_empty() || c.custom.is_some() || c.flow_descriptions.is_empty() && c.domain_names.is_empty()
    {
        return Err(FlowDescriptionError);
    }
    let name = |n: &PfdDomainName| {
        let protocol = match n.protocol.as_deref() {
            None => DomainNameProtocol::Anywhere,
            Some("DNS_QNAME") => DomainNameProtocol::Query,
            Some("TLS_SNI") => DomainNameProtocol::ServerName,
            Some(_) => return Err(FlowDescriptionError), // names in certificates are encrypted since TLS 1.3
        };
        DomainName::new(&n.name, protocol)
    };
    Ok(Pfd {
        flows: c.flow_descriptions.iter().map(|d| d.parse()).collect::<Result<_, _>>()?,
        names: c.domain_names.iter().map(name).collect::<Result<_, _>>()?,
    })
}
