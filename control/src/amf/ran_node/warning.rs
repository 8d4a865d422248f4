//! Warning messages: TS 38.413 §8.9, TS 23.041 §9.1.3.4. The cell broadcast centre is the operator.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{GlobalGnbId, Instant, Tai};
use whimbrel_ngap::ie::{
    BroadcastCancelledAreaList, BroadcastCompletedAreaList, CellIdListForRestart,
    ConcurrentWarningMessageInd, NrCgi, PwsFailedCellIdList, WarningAreaList,
};
use whimbrel_ngap::msg::{
    PwsCancelRequest, PwsCancelResponse, PwsFailureIndication, PwsRestartIndication,
    WriteReplaceWarningRequest, WriteReplaceWarningResponse,
};

use super::{ANSWER_WITHIN, RanNode, RanNodes, RanOutput};
use crate::envelope::AssociationId;
use crate::event::{RanEvent, WarningOutcome};

/// Warnings that are stored, active or ended.
const WARNINGS_MAX: usize = 64;

/// Areas or cells of one warning. NGAP's maximum (65 535) would not fit into one SCTP message.
const AREAS_MAX: usize = 4096;

/// A warning message (TS 38.413 §9.2.8.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What kind of warning (TS 23.041 §9.4.1.2.2).
    pub message_identifier: u16,
    /// Its serial number; a new number is a new warning (TS 23.041 §9.4.1.2.1).
    pub serial_number: u16,
    /// Where it is broadcast.
    pub area: WarningArea,
    /// Seconds between two broadcasts; 0: one broadcast.
    pub repetition_period_s: u32,
    /// How many broadcasts; 0: until it is cancelled (TS 38.413 §9.3.1.38).
    pub broadcasts: u16,
    /// ETWS primary notification: its type and what UEs do (TS 23.041 §9.3.24).
    pub warning_type: Option<[u8; 2]>,
    /// How the contents are coded.
    pub data_coding_scheme: Option<u8>,
    /// The pages, see [`super::cbs_pages`]; empty: none.
    pub contents: Vec<u8>,
    /// Concurrent with earlier warnings, not instead of them (TS 38.413 §9.3.1.46).
    pub concurrent: bool,
}

/// Where a warning is broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarningArea {
    /// The whole PLMN, by all gNBs.
    Everywhere,
    /// In these tracking areas.
    Tais(Vec<Tai>),
    /// In these cells.
    Cells(Vec<NrCgi>),
}

/// Why a warning cannot be sent or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningError {
    /// No such warning is in force.
    Unknown,
    /// No gNB that is up serves the area.
    NoGnb,
    /// Too many areas, cells, octets or seconds for one message.
    TooLong,
    /// Nothing to be broadcast: neither a warning type nor contents.
    Empty,
    /// The maximum number of warnings is active already.
    Limit,
}

impl fmt::Display for WarningOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WarningOutcome::Awaited => f.write_str("no answer yet"),
            WarningOutcome::Broadcasting(Some(n)) => write!(f, "broadcast in {n} cells"),
            WarningOutcome::Broadcasting(None) => f.write_str("broadcast"),
            WarningOutcome::Nowhere => f.write_str("broadcast nowhere"),
            WarningOutcome::NoAnswer => f.write_str("it did not answer"),
            WarningOutcome::Failed(n) => write!(f, "{n} cells do not broadcast any more"),
            WarningOutcome::Cancelled(n) => write!(f, "cancelled after {n} broadcasts"),
        }
    }
}

/// The state of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarningState {
    /// It is broadcast.
    InForce,
    /// Its broadcasts are over.
    Over,
    /// It was cancelled.
    Cancelled,
}

/// A warning with its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WarningStatus {
    /// The warning that was sent.
    pub warning: Warning,
    /// When it was sent.
    pub sent: Instant,
    /// State of the warning at the gNBs.
    pub state: WarningState,
    /// Its outcome at each gNB.
    pub outcomes: BTreeMap<GlobalGnbId, WarningOutcome>,
    /// Until then answers are awaited.
    answers_due: Option<Instant>,
    /// When the last broadcast is over.
    until: Option<Instant>,
}

/// All warnings, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Warnings(Vec<WarningStatus>);

impl Warnings {
    fn find(&mut self, message_identifier: u16, serial_number: u16) -> Option<&mut WarningStatus> {
        self.0.iter_mut().rev().find(|w| {
            (w.warning.message_identifier, w.warning.serial_number) == (message_identifier, serial_number)
        })
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.0.iter().flat_map(|w| [w.answers_due, w.until]).flatten().min()
    }

    /// Makes room: removes the oldest ended warning first.
    fn make_room(&mut self) -> Result<(), WarningError> {
        if self.0.len() < WARNINGS_MAX {
            return Ok(());
        }
        let over = self.0.iter().position(|w| w.state != WarningState::InForce).ok_or(WarningError::Limit)?;
        self.0.remove(over);
        Ok(())
    }
}

impl Warning {
    fn check(&self) -> Result<(), WarningError> {
        let areas = match &self.area {
            WarningArea::Everywhere => 1,
            WarningArea::Tais(tais) => tais.len(),
            WarningArea::Cells(cells) => cells.len(),
        };
        if areas == 0 || (self.contents.is_empty() && self.warning_type.is_none()) {
            return Err(WarningError::Empty);
        }
        // Octets and seconds are the bounds of TS 38.413 §9.3.1.42 and §9.3.1.49.
        if areas > AREAS_MAX || self.contents.len() > 9600 || self.repetition_period_s > 131_071 {
            return Err(WarningError::TooLong);
        }
        Ok(())
    }

    fn area_list(&self) -> Option<WarningAreaList> {
        match &self.area {
            WarningArea::Everywhere => None,
            WarningArea::Tais(tais) => Some(WarningAreaList::TaiListForWarning(tais.clone())),
            WarningArea::Cells(cells) => Some(WarningAreaList::NrCgiListForWarning(cells.clone())),
        }
    }

    fn request(&self) -> WriteReplaceWarningRequest {
        let mut m = WriteReplaceWarningRequest::new(
            self.message_identifier,
            self.serial_number,
            self.repetition_period_s,
            self.broadcasts,
        );
        m.warning_area_list = self.area_list();
        m.warning_type = self.warning_type;
        m.data_coding_scheme = self.data_coding_scheme.filter(|_| !self.contents.is_empty());
        m.warning_message_contents = (!self.contents.is_empty()).then(|| self.contents.clone());
        m.concurrent_warning_message_ind = self.concurrent.then_some(ConcurrentWarningMessageInd::True);
        m
    }

    /// Whether a gNB serves some of the area.
    fn concerns(&self, node: &RanNode) -> bool {
        let Some(gnb) = node.gnb else { return false };
        match &self.area {
            WarningArea::Everywhere => true,
            WarningArea::Tais(tais) => tais.iter().any(|t| t.plmn == gnb.plmn && node.tacs.contains(&t.tac)),
            WarningArea::Cells(cells) => cells.iter().any(|c| is_cell_of(c, gnb)),
        }
    }

    /// How long it is broadcast; `None`: until it is cancelled.
    fn lasts(&self) -> Option<Duration> {
        match (self.broadcasts, self.repetition_period_s) {
            (0, 0) => Some(Duration::ZERO),
            (0, _) => None,
            (n, period) => Some(Duration::from_secs(u64::from(n) * u64::from(period))),
        }
    }
}

/// A cell of a network (TS 38.413 §9.3.1.7).
pub fn nr_cell(plmn: whimbrel_ids::PlmnId, cell: whimbrel_ids::NrCellId) -> NrCgi {
    NrCgi::new(plmn, cell)
}

/// The upper bits of a cell's identity are its gNB's (TS 38.413 §9.3.1.7).
fn is_cell_of(cell: &NrCgi, gnb: GlobalGnbId) -> bool {
    let own = cell.nr_cell_identity.value() >> (36 - u32::from(gnb.bits()));
    cell.plmn_identity == gnb.plmn && own == u64::from(gnb.gnb_id)
}

impl RanNodes {
    /// All warnings that are remembered, oldest first.
    pub fn warnings(&self) -> &[WarningStatus] {
        &self.warnings.0
    }

    /// Write-Replace Warning (§8.9.1) to every gNB of the area. Gives how many there are.
    pub fn warn(&mut self, now: Instant, warning: Warning) -> Result<(usize, RanOutput), WarningError> {
        warning.check()?;
        let mut out = RanOutput::default();
        let concerned = self.concerned(&warning);
        if concerned.is_empty() {
            return Err(WarningError::NoGnb);
        }
        let (id, serial) = (warning.message_identifier, warning.serial_number);
        // A repeated warning replaces the former.
        self.warnings.0.retain(|w| (w.warning.message_identifier, w.warning.serial_number) != (id, serial));
        self.warnings.make_room()?;
        let mut outcomes = BTreeMap::new();
        for (association, gnb) in &concerned {
            out.messages.push((*association, warning.request().into()));
            outcomes.insert(*gnb, WarningOutcome::Awaited);
        }
        self.warnings.0.push(WarningStatus {
            until: warning.lasts().map(|d| now + d),
            warning,
            sent: now,
            state: WarningState::InForce,
            outcomes,
            answers_due: Some(now + ANSWER_WITHIN),
        });
        Ok((concerned.len(), out))
    }

    /// PWS Cancel (§8.9.2) to every gNB that was sent the warning. Gives how many there are.
    pub fn cancel_warning(
        &mut self,
        now: Instant,
        message_identifier: u16,
        serial_number: u16,
    ) -> Result<(usize, RanOutput), WarningError> {
        let mut out = RanOutput::default();
        let known: BTreeMap<GlobalGnbId, AssociationId> =
            self.serving().filter_map(|(a, n)| Some((n.gnb?, a))).collect();
        let status = self.warnings.find(message_identifier, serial_number);
        let status = status.filter(|w| w.state == WarningState::InForce).ok_or(WarningError::Unknown)?;
        (status.state, status.until) = (WarningState::Cancelled, None);
        status.answers_due = Some(now + ANSWER_WITHIN);
        for (gnb, outcome) in &mut status.outcomes {
            let Some(association) = known.get(gnb) else { continue };
            let mut m = PwsCancelRequest::new(message_identifier, serial_number);
            m.warning_area_list = status.warning.area_list();
            out.messages.push((*association, m.into()));
            *outcome = WarningOutcome::Awaited;
        }
        Ok((out.messages.len(), out))
    }

    fn concerned(&self, warning: &Warning) -> Vec<(AssociationId, GlobalGnbId)> {
        let nodes = self.serving().filter(|(_, n)| warning.concerns(n));
        nodes.filter_map(|(a, n)| Some((a, n.gnb?))).collect()
    }

    /// §8.9.1.2: without an area, the gNB does not broadcast it anywhere.
    pub(super) fn warned(
        &mut self,
        association: AssociationId,
        m: &WriteReplaceWarningResponse,
        out: &mut RanOutput,
    ) {
        let areas = m.broadcast_completed_area_list.as_ref().map(completed);
        let Some(gnb) = self.nodes.get(&association).and_then(|n| n.gnb) else { return };
        let Some(outcome) = self
            .warnings
            .find(m.message_identifier, m.serial_number)
            .filter(|w| w.state == WarningState::InForce)
            .and_then(|w| w.outcomes.get_mut(&gnb))
        else {
            return; // this gNB was not asked
        };
        *outcome = match areas {
            Some(n) => WarningOutcome::Broadcasting(Some(n)),
            None => WarningOutcome::Nowhere,
        };
        out.events.push(RanEvent::Warned {
            association,
            message_identifier: m.message_identifier,
            serial_number: m.serial_number,
            outcome: outcome.clone(),
        });
    }

    /// PWS CANCEL RESPONSE of a gNB (§8.9.2.2).
    pub(super) fn warning_cancelled(
        &mut self,
        association: AssociationId,
        m: &PwsCancelResponse,
        out: &mut RanOutput,
    ) {
        let Some(gnb) = self.nodes.get(&association).and_then(|n| n.gnb) else { return };
        let Some(outcome) = self
            .warnings
            .find(m.message_identifier, m.serial_number)
            .filter(|w| w.state == WarningState::Cancelled)
            .and_then(|w| w.outcomes.get_mut(&gnb))
        else {
            return;
        };
        *outcome = WarningOutcome::Cancelled(m.broadcast_cancelled_area_list.as_ref().map_or(0, broadcasts));
        out.events.push(RanEvent::Warned {
            association,
            message_identifier: m.message_identifier,
            serial_number: m.serial_number,
            outcome: outcome.clone(),
        });
    }

    /// PWS Restart Indication (§8.9.3): cells have lost their warnings, which are sent again (TS 23.041 §9.1.3.4.5).
    pub(super) fn pws_restarted(
        &mut self,
        now: Instant,
        association: AssociationId,
        m: &PwsRestartIndication,
        out: &mut RanOutput,
    ) {
        let cells = match &m.cell_id_list_for_restart {
            CellIdListForRestart::NrCgiListforRestart(cells) => cells.len(),
            CellIdListForRestart::EutraCgiListforRestart(cells) => cells.len(),
        };
        out.events.push(RanEvent::WarningsLost { association, cells, restarted: true });
        self.reload_warnings(now, association, out);
    }

    /// PWS Failure Indication (§8.9.4): cells have stopped broadcasting.
    pub(super) fn pws_failed(
        &mut self,
        association: AssociationId,
        m: &PwsFailureIndication,
        out: &mut RanOutput,
    ) {
        let cells = match &m.pws_failed_cell_id_list {
            PwsFailedCellIdList::NrCgiPwsFailedList(cells) => cells.len(),
            PwsFailedCellIdList::EutraCgiPwsFailedList(cells) => cells.len(),
        };
        out.events.push(RanEvent::WarningsLost { association, cells, restarted: false });
        let Some(gnb) = self.nodes.get(&association).and_then(|n| n.gnb) else { return };
        for status in self.warnings.0.iter_mut().filter(|w| w.state == WarningState::InForce) {
            if let Some(outcome) = status.outcomes.get_mut(&gnb) {
                *outcome = WarningOutcome::Failed(cells);
            }
        }
    }

    /// Sends the active warnings of its area to a gNB that has set up, or has lost them.
    pub(super) fn reload_warnings(&mut self, now: Instant, association: AssociationId, out: &mut RanOutput) {
        let Some(node) = self.nodes.get(&association).filter(|n| RanNode::serves(n)) else { return };
        let Some(gnb) = node.gnb else { return };
        for status in self.warnings.0.iter_mut().filter(|w| w.state == WarningState::InForce) {
            if status.warning.concerns(node) {
                out.messages.push((association, status.warning.request().into()));
                status.outcomes.insert(gnb, WarningOutcome::Awaited);
                status.answers_due = Some(now + ANSWER_WITHIN);
            }
        }
    }

    pub(super) fn warnings_due(&mut self, now: Instant, out: &mut RanOutput) {
        for status in &mut self.warnings.0 {
            if status.answers_due.is_some_and(|due| due <= now) {
                status.answers_due = None;
                for (gnb, outcome) in &mut status.outcomes {
                    if *outcome == WarningOutcome::Awaited {
                        *outcome = WarningOutcome::NoAnswer;
                        out.events.push(RanEvent::WarningUnanswered {
                            gnb: *gnb,
                            message_identifier: status.warning.message_identifier,
                            serial_number: status.warning.serial_number,
                        });
                    }
                }
            }
            if status.until.is_some_and(|until| until <= now) {
                (status.until, status.state) = (None, WarningState::Over);
            }
        }
    }
}

/// How many cells or areas broadcast.
fn completed(list: &BroadcastCompletedAreaList) -> usize {
    match list {
        BroadcastCompletedAreaList::CellIdBroadcastEutra(l) => l.len(),
        BroadcastCompletedAreaList::TaiBroadcastEutra(l) => {
            l.iter().map(|t| t.completed_cells_in_tai_eutra.len()).sum()
        }
        BroadcastCompletedAreaList::EmergencyAreaIdBroadcastEutra(l) => {
            l.iter().map(|t| t.completed_cells_in_eai_eutra.len()).sum()
        }
        BroadcastCompletedAreaList::CellIdBroadcastNr(l) => l.len(),
        BroadcastCompletedAreaList::TaiBroadcastNr(l) => {
            l.iter().map(|t| t.completed_cells_in_tai_nr.len()).sum()
        }
        BroadcastCompletedAreaList::EmergencyAreaIdBroadcastNr(l) => {
            l.iter().map(|t| t.completed_cells_in_eai_nr.len()).sum()
        }
    }
}

/// How many broadcasts had been made, over all cells.
fn broadcasts(list: &BroadcastCancelledAreaList) -> u64 {
    let sum = |numbers: &mut dyn Iterator<Item = u16>| numbers.map(u64::from).sum();
    match list {
        BroadcastCancelledAreaList::CellIdCancelledEutra(l) => {
            sum(&mut l.iter().map(|c| c.number_of_broadcasts))
        }
        BroadcastCancelledAreaList::TaiCancelledEutra(l) => {
            sum(&mut l.iter().flat_map(|t| &t.cancelled_cells_in_tai_eutra).map(|c| c.number_of_broadcasts))
        }
        BroadcastCancelledAreaList::EmergencyAreaIdCancelledEutra(l) => {
            sum(&mut l.iter().flat_map(|t| &t.cancelled_cells_in_eai_eutra).map(|c| c.number_of_broadcasts))
        }
        BroadcastCancelledAreaList::CellIdCancelledNr(l) => {
            sum(&mut l.iter().map(|c| c.number_of_broadcasts))
        }
        BroadcastCancelledAreaList::TaiCancelledNr(l) => {
            sum(&mut l.iter().flat_map(|t| &t.cancelled_cells_in_tai_nr).map(|c| c.number_of_broadcasts))
        }
        BroadcastCancelledAreaList::EmergencyAreaIdCancelledNr(l) => {
            sum(&mut l.iter().flat_map(|t| &t.cancelled_cells_in_eai_nr).map(|c| c.number_of_broadcasts))
        }
    }
}
