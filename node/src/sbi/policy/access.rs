//! AM policy associations of the UEs of this core (Npcf_AMPolicyControl, TS 29.507 §4.2; TS 23.502 §4.16.1, §4.16.3).
//!
//! A PCF may want one before it gives policies for a UE's sessions, as free5GC's does. What it decides there has no effect: service areas
//! and RFSP indices are those of the subscription.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use whimbrel_ids::Supi;
use whimbrel_sbi_types::common::{AccessType, RatType, SupportedFeatures, Uri};
use whimbrel_sbi_types::npcf_am::PolicyAssociationRequest;
use whimbrel_sbi_types::to_vec;

use crate::sbi::callbacks;
use crate::sbi::identity::supi_text;
use crate::sbi::peer::{Peer, RequestMethod};
use crate::sbi::udm::Consumer;

/// The collection of associations.
const COLLECTION: &str = "/npcf-am-policy-control/v1/policies";

/// UEs whose associations are remembered.
const UES_MAX: usize = 1 << 20;

const CREATE: &str = "Npcf_AMPolicyControl_Create";
const DELETE: &str = "Npcf_AMPolicyControl_Delete";

/// The association of one UE. The lock orders its requests.
type UeAssociation = Arc<Mutex<Option<Box<str>>>>;

/// AM policy associations at a PCF.
pub(super) struct AmPolicies {
    peer: Arc<Peer>,
    consumer: Consumer,
    ues: std::sync::Mutex<BTreeMap<Supi, UeAssociation>>,
}

impl AmPolicies {
    pub(super) fn new(peer: Arc<Peer>, consumer: Consumer) -> Self {
        Self { peer, consumer, ues: std::sync::Mutex::default() }
    }

    /// AM Policy Association Establishment, unless the UE has one (TS 29.507 §4.2.2).
    ///
    /// A PCF that refuses or fails is asked again with the UE's next session.
    pub(super) async fn associate(&self, supi: Supi) {
        let association = {
            let mut ues = self.ues();
            if ues.len() >= UES_MAX && !ues.contains_key(&supi) {
                return;
            }
            ues.entry(supi).or_default().clone()
        };
        let mut association = association.lock().await;
        if association.is_some() {
            return;
        }
        let Some(octets) = self.request(supi) else { return };
        let Ok(reply) = self.peer.send(CREATE, RequestMethod::Post, COLLECTION, Some(octets)).await else {
            return;
        };
        // free5GC's PCF answers some refusals with status 200.
        match reply.created_in(COLLECTION).filter(|_| reply.status == 201) {
            Some(reference) => *association = Some(reference.into()),
            None if reply.is_success() => self.peer.note(CREATE, "it made no association"),
            None => self.peer.note(CREATE, &format!("it answered with HTTP status {}", reply.status)),
        }
    }

    /// AM Policy Association Termination (TS 29.507 §4.2.5).
    pub(super) async fn end(&self, supi: Supi) {
        let association = self.ues().remove(&supi);
        let Some(association) = association else { return };
        let reference = association.lock().await.take();
        if let Some(reference) = reference {
            let path = format!("{COLLECTION}/{reference}");
            // An association that is not there needs no deletion; a failure is logged where it is found.
            let _ = self.peer.send(DELETE, RequestMethod::Delete, &path, None).await;
        }
    }

    /// PolicyAssociationRequest (TS 29.507 §5.6.2.3).
    fn request(&self, supi: Supi) -> Option<Vec<u8>> {
        let uri = format!("{}{}/{}", self.consumer.root, callbacks::PCF_PATH, supi_text(supi));
        Some(to_vec(&PolicyAssociationRequest {
            notification_uri: Uri::new(&uri).ok()?,
            alt_notif_ipv4_addrs: None,
            alt_notif_ipv6_addrs: None,
            alt_notif_fqdns: None,
            supi: supi.into(),
            gpsi: None,
            access_type: Some(AccessType::ThreeGppAccess),
            access_types: None,
            pei: None,
            user_loc: None,
            time_zone: None,
            serving_plmn: Some(self.consumer.plmn.into()),
            rat_type: Some(RatType::Nr),
            rat_types: None,
            group_ids: None,
            serv_area_res: None,
            rfsp: None,
            ue_ambr: None,
            ue_slice_mbrs: None,
            allowed_snssais: None,
            target_snssais: None,
            n3g_allowed_snssais: None,
            guami: Some(self.consumer.guami.into()),
            service_name: None,
            supp_feat: SupportedFeatures::new("0").ok()?,
        }))
    }

    fn ues(&self) -> std::sync::MutexGuard<'_, BTreeMap<Supi, UeAssociation>> {
        self.ues.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
