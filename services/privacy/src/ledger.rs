//! The knowledge ledger: which party sees which field in which message or store, computed from recorded octets.
//!
//! Two searches go over all that a party received, wrote or stored. The first looks for known values (identities, keys, places,
//! addresses) in each form in which octets are written down. The second looks for what has no name: octets that stand in several
//! recordings of one user, or of one operator, and in those of no other, since by these a party knows one again. What is sealed to
//! another party, or random, is found by neither.

use std::collections::{BTreeMap, BTreeSet};

use crate::crypto::hash;

/// A party that keeps recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// The operator that serves the UE.
    Operator,
    /// The broker that knows the user.
    Broker,
    /// An agency, which has orders carried out.
    Agency,
}

impl Party {
    const ALL: [(Self, &str); 3] =
        [(Self::Operator, "operator"), (Self::Broker, "broker"), (Self::Agency, "agency")];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(party, _)| *party == self).map_or("", |(_, name)| name)
    }
}

/// What may be known. The first four are the columns of Table 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The user's identity (UID).
    UserIdentity,
    /// Which operator serves (OID), by name or by a value by which it is known again.
    OperatorIdentity,
    /// Where the UE is.
    Location,
    /// That two sessions are of one user.
    Trajectory,
    /// Under which address the UE is reached.
    Address,
    /// That two users are served by one operator at one time.
    CoLocation,
}

impl Field {
    /// All fields of the ledger.
    pub const ALL: [Self; 6] = [
        Self::UserIdentity,
        Self::OperatorIdentity,
        Self::Location,
        Self::Trajectory,
        Self::Address,
        Self::CoLocation,
    ];

    /// Those of Table 4.1.
    pub const TABLE: [Self; 4] =
        [Self::UserIdentity, Self::OperatorIdentity, Self::Location, Self::Trajectory];
}

impl core::fmt::Display for Field {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::UserIdentity => "user identity",
            Self::OperatorIdentity => "operator identity",
            Self::Location => "location",
            Self::Trajectory => "trajectory",
            Self::Address => "UE address",
            Self::CoLocation => "co-location",
        })
    }
}

/// How a party came by octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// The party received it.
    Received,
    /// The party sent it.
    Sent,
    /// Written into a store, a log or a metric.
    Stored,
}

impl core::fmt::Display for How {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Received => "received",
            Self::Sent => "sent",
            Self::Stored => "stored",
        })
    }
}

/// A value that is searched for.
#[derive(Clone, Debug)]
pub struct Value {
    field: Field,
    /// Each form in which it may stand.
    forms: Vec<Vec<u8>>,
}

impl Value {
    /// The fewest octets of a value: shorter ones are found by chance.
    pub const OCTETS_MIN: usize = 4;

    /// As it is, backwards, as hexadecimal digits of either case, and its SHA-256. Panics below [`Value::OCTETS_MIN`].
    pub fn new(field: Field, octets: &[u8]) -> Self {
        assert!(octets.len() >= Self::OCTETS_MIN);
        let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        let backwards = octets.iter().rev().copied().collect();
        let digest = hash(&[octets]).to_vec();
        let forms =
            vec![octets.to_vec(), backwards, hex.to_uppercase().into_bytes(), hex.into_bytes(), digest];
        Self { field, forms }
    }
}

/// The user and the operator of a recording: the test that records knows them, the party need not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// The user, and which of its sessions.
    pub session: Option<(u32, u32)>,
    /// The operator, and which of its tokens.
    pub token: Option<(u32, u32)>,
}

/// Octets that a party has.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The party that has them.
    pub party: Party,
    /// How it came by them.
    pub how: How,
    /// Which message or store.
    pub what: &'static str,
    /// The user and the operator that they belong to.
    pub about: About,
    /// The octets that the party has.
    pub octets: Vec<u8>,
}

/// Octets in a row that others have too are a constant of the protocol: a window with them matches by what few octets are beside them,
/// and so by chance.
const GRAM: usize = 4;

/// The grams that stand in the windows of two owners.
fn shared_grams<'a>(owned: &[(&'a [u8], (u32, u32))]) -> BTreeSet<&'a [u8]> {
    let of = |(window, (owner, _)): &(&'a [u8], (u32, u32))| (&window[..GRAM], *owner);
    let mut grams: Vec<(&[u8], u32)> = owned.iter().map(of).collect();
    grams.extend(owned.iter().map(|(window, (owner, _))| (&window[RECURRING - GRAM..], *owner)));
    grams.sort_unstable();
    grams.dedup();
    grams.windows(2).filter(|of| of[0].0 == of[1].0).map(|of| of[0].0).collect()
}

/// The values by the first octets of their forms.
struct FormIndex<'a>(BTreeMap<&'a [u8], Vec<(usize, &'a [u8])>>);

impl<'a> FormIndex<'a> {
    fn of(values: &'a [Value]) -> Self {
        let mut index: BTreeMap<&[u8], Vec<_>> = BTreeMap::new();
        for (n, value) in values.iter().enumerate() {
            for form in &value.forms {
                index.entry(&form[..Value::OCTETS_MIN]).or_default().push((n, &form[..]));
            }
        }
        Self(index)
    }

    /// Which values stand in octets, in any of their forms.
    fn values_in(&self, octets: &[u8]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for (at, window) in octets.windows(Value::OCTETS_MIN).enumerate() {
            let here = self.0.get(window).into_iter().flatten();
            found.extend(here.filter(|(_, form)| octets[at..].starts_with(form)).map(|(n, _)| *n));
        }
        found
    }
}

/// How many octets must recur for a user or an operator to be recognised by them.
const RECURRING: usize = 8;

/// A line of the ledger: a message or a store of a party.
type LedgerLine = (Party, How, &'static str);

/// Which party sees what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    lines: BTreeMap<LedgerLine, BTreeSet<Field>>,
}

impl Ledger {
    /// Of recordings. `public` are octets that every party knows and that identify no user and no operator, such as the name of the broker.
    pub fn of(values: &[Value], recordings: &[Recording], public: &[&[u8]]) -> Self {
        let mut ledger = Self::default();
        let index = FormIndex::of(values);
        let found: Vec<BTreeSet<usize>> = recordings.iter().map(|r| index.values_in(&r.octets)).collect();
        for (recording, found) in recordings.iter().zip(&found) {
            let fields = found.iter().filter_map(|n| values.get(*n)).map(|value| value.field);
            let line = ledger.lines.entry((recording.party, recording.how, recording.what)).or_default();
            let of_several = [Field::CoLocation, Field::Trajectory];
            line.extend(fields.filter(|field| !of_several.contains(field)));
        }
        for (party, _) in Party::ALL {
            let of: Vec<_> = recordings.iter().filter(|recording| recording.party == party).collect();
            ledger.mark_recurring(&of, public, Field::Trajectory, |about| about.session);
            ledger.mark_recurring(&of, public, Field::OperatorIdentity, |about| about.token);
            let of = recordings.iter().zip(&found).filter(|(recording, _)| recording.party == party);
            let of: Vec<_> = of.collect();
            ledger.mark_shared(&of, values);
            ledger.mark_linked(&of, values);
        }
        ledger
    }

    /// Marks the lines by whose octets one is known again: they stand in two recordings of one, in different sessions or tokens, and
    /// in none of another.
    fn mark_recurring(
        &mut self,
        recordings: &[&Recording],
        public: &[&[u8]],
        field: Field,
        about: impl Fn(&About) -> Option<(u32, u32)>,
    ) {
        // An operator has its own name, and a broker the names of its users.
        let known = match recordings.first().map(|recording| recording.party) {
            Some(Party::Operator) => field == Field::OperatorIdentity,
            Some(Party::Broker) => field == Field::Trajectory,
            // It is to know the users of its orders again.
            Some(Party::Agency) | None => true,
        };
        if known {
            return;
        }
        let varied = |window: &[u8]| window.iter().collect::<BTreeSet<_>>().len() > RECURRING / 2;
        let is_public = |window: &[u8]| public.iter().any(|p| p.windows(RECURRING).any(|w| w == window));
        let mut owned: Vec<(&[u8], (u32, u32))> = recordings
            .iter()
            .filter_map(|recording| Some((recording, about(&recording.about)?)))
            .flat_map(|(recording, owner)| recording.octets.windows(RECURRING).map(move |w| (w, owner)))
            .collect();
        owned.sort_unstable();
        owned.dedup();
        let shared = shared_grams(&owned);
        let is_own = |window: &[u8]| window.windows(GRAM).all(|gram| !shared.contains(gram));
        let recurring: BTreeSet<&[u8]> = owned
            .chunk_by(|(a, _), (b, _)| a == b)
            .filter(|of| of.len() > 1 && of.iter().all(|(_, (owner, _))| *owner == of[0].1.0))
            .map(|of| of[0].0)
            .filter(|window| varied(window) && is_own(window) && !is_public(window))
            .collect();
        for recording in recordings.iter().filter(|recording| about(&recording.about).is_some()) {
            if recording.octets.windows(RECURRING).any(|window| recurring.contains(window)) {
                self.mark(recording, field);
            }
        }
    }

    /// Marks the lines by which two users are seen to be at one operator: a value of the field co-location stands in recordings of
    /// both.
    fn mark_shared(&mut self, recordings: &[(&Recording, &BTreeSet<usize>)], values: &[Value]) {
        let of_groups = values.iter().enumerate().filter(|(_, value)| value.field == Field::CoLocation);
        for (n, _) in of_groups {
            let has: Vec<_> = recordings
                .iter()
                .filter(|(r, found)| r.about.session.is_some() && found.contains(&n))
                .collect();
            let users: BTreeSet<_> =
                has.iter().filter_map(|(r, _)| r.about.session).map(|(user, _)| user).collect();
            if users.len() > 1 {
                has.iter().for_each(|(recording, _)| self.mark(recording, Field::CoLocation));
            }
        }
    }

    /// Marks the lines by which two sessions are seen to be of one user: a value of the field trajectory stands in recordings of both.
    fn mark_linked(&mut self, recordings: &[(&Recording, &BTreeSet<usize>)], values: &[Value]) {
        let names = values.iter().enumerate().filter(|(_, value)| value.field == Field::Trajectory);
        for (n, _) in names {
            let has: Vec<_> = recordings.iter().filter(|(_, found)| found.contains(&n)).collect();
            let sessions: BTreeSet<_> = has.iter().filter_map(|(r, _)| r.about.session).collect();
            if sessions.len() > 1 {
                has.iter().for_each(|(recording, _)| self.mark(recording, Field::Trajectory));
            }
        }
    }

    fn mark(&mut self, recording: &Recording, field: Field) {
        self.lines.entry((recording.party, recording.how, recording.what)).or_default().insert(field);
    }

    /// The table of one party alone.
    pub fn of_party(&self, party: Party) -> String {
        let name = party.name();
        let is_of = |line: &&str| {
            line.starts_with(&format!("| {name} |")) || line.starts_with(&format!("| **{name}**"))
        };
        let text = self.to_string();
        text.lines().take(2).chain(text.lines().filter(is_of)).map(|line| format!("{line}\n")).collect()
    }

    /// All that a party sees.
    pub fn sum(&self, party: Party) -> BTreeSet<Field> {
        self.lines
            .iter()
            .filter(|((of, ..), _)| *of == party)
            .flat_map(|(_, fields)| fields)
            .copied()
            .collect()
    }

    /// The row of Table 4.1.
    pub fn row(&self, party: Party) -> BTreeSet<Field> {
        self.sum(party).into_iter().filter(|field| Field::TABLE.contains(field)).collect()
    }

    /// The messages and stores of a party that show a field.
    pub fn lines_with(&self, party: Party, field: Field) -> Vec<&'static str> {
        let has =
            |((of, ..), fields): &(&LedgerLine, &BTreeSet<Field>)| *of == party && fields.contains(&field);
        self.lines.iter().filter(has).map(|((_, _, what), _)| *what).collect()
    }
}

impl core::fmt::Display for Ledger {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let cells = |fields: &BTreeSet<Field>| {
            Field::ALL.map(|field| if fields.contains(&field) { " x |" } else { " |" }).concat()
        };
        write!(f, "| party | message or store |")?;
        Field::ALL.iter().try_for_each(|field| write!(f, " {field} |"))?;
        writeln!(f, "\n|---|---|{}", "---|".repeat(Field::ALL.len()))?;
        let has_lines = |party| self.lines.keys().any(|(of, ..)| *of == party);
        for (party, name) in Party::ALL.into_iter().filter(|(p, _)| *p != Party::Agency || has_lines(*p)) {
            for ((_, how, what), fields) in self.lines.iter().filter(|((of, ..), _)| *of == party) {
                writeln!(f, "| {name} | {what}, {how} |{}", cells(fields))?;
            }
            writeln!(f, "| **{name}** | **all** |{}", cells(&self.sum(party)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(party: Party, session: (u32, u32), octets: &[u8]) -> Recording {
        let about = About { session: Some(session), token: Some((session.0, session.1)) };
        Recording { party, how: How::Received, what: "message", about, octets: octets.to_vec() }
    }

    #[test]
    fn a_value_is_found_in_every_form() {
        let values = [Value::new(Field::Location, &[0xab, 1, 2, 3, 4])];
        let index = FormIndex::of(&values);
        let stands_in = |octets: &[u8]| !index.values_in(octets).is_empty();
        for octets in
            [&[9, 0xab, 1, 2, 3, 4, 9][..], &[4, 3, 2, 1, 0xab], b"cell ab01020304", b"cell AB01020304"]
        {
            assert!(stands_in(octets), "{octets:02x?}");
        }
        assert!(stands_in(&hash(&[&[0xab, 1, 2, 3, 4]])));
        assert!(!stands_in(&[0xab, 1, 2, 3, 5]));
    }

    #[test]
    fn octets_that_recur_with_one_user_alone_are_a_trajectory() {
        let pseudonym = *b"a-pseudonym";
        let of = |recordings: &[Recording]| Ledger::of(&[], recordings, &[]).sum(Party::Operator);
        let one = recording(Party::Operator, (1, 1), &pseudonym);
        let again = recording(Party::Operator, (1, 2), &[b"in another message ", &pseudonym[..]].concat());
        assert_eq!(of(&[one.clone(), again.clone()]), [Field::Trajectory].into());
        // A constant of the protocol stands in everybody's, and a message sent twice is one session's.
        assert!(of(&[one.clone(), again, recording(Party::Operator, (2, 1), &pseudonym)]).is_empty());
        assert!(of(&[one.clone(), one]).is_empty());
        // A broker knows its users anyway; what it must not know again is the operator.
        let at_broker = [1, 2].map(|session| recording(Party::Broker, (1, session), &pseudonym));
        assert_eq!(Ledger::of(&[], &at_broker, &[]).sum(Party::Broker), [Field::OperatorIdentity].into());
        assert!(Ledger::of(&[], &at_broker, &[&pseudonym]).sum(Party::Broker).is_empty());
    }

    #[test]
    fn a_name_that_stands_in_two_sessions_of_a_user_is_a_trajectory() {
        // Too short to be found where nothing is known of it.
        let guti = [2, 9, 0x99, 0xf9, 7, 1];
        let values = [Value::new(Field::Trajectory, &guti)];
        let two = [1, 2].map(|session| recording(Party::Operator, (1, session), &guti));
        assert_eq!(
            Ledger::of(&values, &two, &[]).lines_with(Party::Operator, Field::Trajectory),
            ["message"]
        );
        assert!(Ledger::of(&values, &two[..1], &[]).sum(Party::Operator).is_empty());
    }

    #[test]
    fn a_group_that_two_users_share_is_a_co_location() {
        let values = [Value::new(Field::CoLocation, &[7; 32])];
        let two = [1, 2].map(|user| recording(Party::Broker, (user, 1), &[7; 32]));
        assert_eq!(Ledger::of(&values, &two, &[]).lines_with(Party::Broker, Field::CoLocation), ["message"]);
        assert!(Ledger::of(&values, &two[..1], &[]).sum(Party::Broker).is_empty());
    }
}
