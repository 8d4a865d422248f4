//! What other implementations of FlatBuffers write and read.

use flatbuffers::{
    Follow, ForwardsUOffset, InvalidFlatbuffer, SimpleToVerifyInSlice, Table, Vector, Verifiable, Verifier,
    root,
};
use whimbrel_ids::{AmfUeNgapId, Guami, PlmnId, RanUeNgapId, SNssai};
use whimbrel_ngap::fast::{self, Form, schema};
use whimbrel_ngap::*;

fn octets(hex: &str) -> Vec<u8> {
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(octet).collect()
}

/// `testdata/vectors.txt` is written by `flatc`, the compiler of the FlatBuffers project, from JSON that it read from
/// octets of ours (`examples/flatc.rs`): a message of each type, beside its PER.
#[test]
fn what_flatc_writes_is_read() {
    let mut types = 0;
    for line in include_str!("../testdata/vectors.txt").lines() {
        let [name, per, flat] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let message = Message::decode(&octets(per)).unwrap();
        assert_eq!(message.name(), name);
        assert_eq!(Message::decode_fast(&octets(flat), Form::Plain), Ok(message));
        types += 1;
    }
    assert_eq!(types, schema().split("union Message {").nth(1).unwrap().matches(" = ").count());
}

#[test] // `cargo run -p whimbrel-fastwire --example schema` writes it
fn the_schema_for_other_readers_is_of_today() {
    assert_eq!(include_str!("../testdata/ngap.fbs"), schema());
}

#[test] // another schema is another number, by which gNB and core find out that they keep to PER
fn the_digest_is_that_of_the_schema() {
    assert_eq!(fast::DIGEST, fast::digest(&schema()), "{:#010x}", fast::digest(&schema()));
}

/// A struct of octets, as generated code has it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
struct Struct<const N: usize>([u8; N]);

impl<'a, const N: usize> Follow<'a> for Struct<N> {
    type Inner = Self;
    unsafe fn follow(buf: &'a [u8], loc: usize) -> Self {
        Self(*buf[loc..].first_chunk().unwrap())
    }
}

impl<const N: usize> Verifiable for Struct<N> {
    fn run_verifier(v: &mut Verifier<'_, '_>, pos: usize) -> Result<(), InvalidFlatbuffer> {
        v.in_buffer::<Self>(pos)
    }
}

impl<const N: usize> SimpleToVerifyInSlice for Struct<N> {}

/// A table as the `flatbuffers` crate reads one, checked by its verifier as `testdata/ngap.fbs` declares it.
struct Checked<'a, const TYPE: u8>(Table<'a>);

const PDU: u8 = 0;
const INITIAL_CONTEXT_SETUP_REQUEST: u8 = 14 * 3 + 1;
const UE_CONTEXT_RELEASE_COMMAND: u8 = 41 * 3 + 1;
const UE_NGAP_ID_PAIR: u8 = 254;
const CAUSE_NAS_VALUE: u8 = 255;

impl<'a, const TYPE: u8> Follow<'a> for Checked<'a, TYPE> {
    type Inner = Self;
    unsafe fn follow(buf: &'a [u8], loc: usize) -> Self {
        // SAFETY: the caller checked that a table is there.
        Self(unsafe { Table::new(buf, loc) })
    }
}

/// The offset of a slot in a vtable.
const fn vt(slot: u16) -> u16 {
    4 + 2 * slot
}

type Octets<'a> = ForwardsUOffset<Vector<'a, u8>>;

impl<const TYPE: u8> Verifiable for Checked<'_, TYPE> {
    fn run_verifier(v: &mut Verifier<'_, '_>, pos: usize) -> Result<(), InvalidFlatbuffer> {
        let v = v.visit_table(pos)?;
        match TYPE {
            PDU => {
                v.visit_union::<u8, _>(
                    "message_type",
                    vt(0),
                    "message",
                    vt(1),
                    true,
                    |key, v, pos| match key {
                        INITIAL_CONTEXT_SETUP_REQUEST => v.verify_union_variant::<ForwardsUOffset<
                            Checked<'_, INITIAL_CONTEXT_SETUP_REQUEST>,
                        >>("", pos),
                        UE_CONTEXT_RELEASE_COMMAND => v.verify_union_variant::<ForwardsUOffset<
                            Checked<'_, UE_CONTEXT_RELEASE_COMMAND>,
                        >>("", pos),
                        _ => InvalidFlatbuffer::new_missing_required("message"),
                    },
                )?
            }
            INITIAL_CONTEXT_SETUP_REQUEST => v
                .visit_field::<u64>("amf_ue_ngap_id", vt(0), false)?
                .visit_field::<u32>("ran_ue_ngap_id", vt(1), false)?
                .visit_field::<ForwardsUOffset<&str>>("old_amf", vt(2), false)?
                .visit_field::<Struct<6>>("guami", vt(5), true)?
                .visit_field::<ForwardsUOffset<Vector<'_, Struct<4>>>>("allowed_nssai", vt(7), true)?
                .visit_field::<Struct<32>>("security_key", vt(9), true)?
                .visit_field::<u64>("masked_imeisv", vt(13), false)?
                .visit_field::<Octets<'_>>("nas_pdu", vt(14), false)?,
            UE_CONTEXT_RELEASE_COMMAND => v
                .visit_union::<u8, _>("ue_ngap_ids_type", vt(0), "ue_ngap_ids", vt(1), true, |_, v, pos| {
                    v.verify_union_variant::<ForwardsUOffset<Checked<'_, UE_NGAP_ID_PAIR>>>("", pos)
                })?
                .visit_union::<u8, _>("cause_type", vt(2), "cause", vt(3), true, |_, v, pos| {
                    v.verify_union_variant::<ForwardsUOffset<Checked<'_, CAUSE_NAS_VALUE>>>("", pos)
                })?,
            UE_NGAP_ID_PAIR => v.visit_field::<u64>("amf_ue_ngap_id", vt(0), false)?.visit_field::<u32>(
                "ran_ue_ngap_id",
                vt(1),
                false,
            )?,
            _ => v.visit_field::<u8>("value", vt(0), false)?,
        }
        .finish();
        Ok(())
    }
}

impl<'a, const TYPE: u8> Checked<'a, TYPE> {
    /// A field that `run_verifier` names.
    fn get<T: Follow<'a> + 'a>(&self, slot: u16) -> Option<T::Inner> {
        // SAFETY: the verifier saw a value of this type at the slot.
        unsafe { self.0.get::<T>(vt(slot), None) }
    }
}

/// The octets of a message in a buffer aligned as this reader asks.
fn written(message: Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode_fast(Form::Plain, &mut out);
    out
}

fn names() -> (AmfUeNgapId, RanUeNgapId) {
    (AmfUeNgapId::new(0x12_3456_789a).unwrap(), RanUeNgapId(77))
}

#[test]
fn the_flatbuffers_crate_reads_an_initial_context_setup_request() {
    let (amf, ran) = names();
    let guami = Guami {
        plmn: PlmnId::from_ngap_octets([0x99, 0xf9, 0x07]).unwrap(),
        amf_id: whimbrel_ids::AmfId::from_octets([1, 2, 3]),
    };
    let capabilities = UeSecurityCapabilities::new(0xe000, 0xe000, 0, 0);
    let nssai = vec![SNssai::sst(1), SNssai::new(2, Some(0x01_0203))];
    let mut m = InitialContextSetupRequest::new(amf, ran, guami, nssai, capabilities, SecurityKey([7; 32]));
    m.old_amf = Some("amf1.example".into());
    m.masked_imeisv = Some(u64::MAX - 1);
    m.nas_pdu = Some(vec![0x7e, 0, 0x42]);

    let octets = written(m.into());
    let pdu = root::<Checked<'_, PDU>>(&octets).unwrap();
    assert_eq!(pdu.get::<u8>(0), Some(INITIAL_CONTEXT_SETUP_REQUEST));
    let m = pdu.get::<ForwardsUOffset<Checked<'_, INITIAL_CONTEXT_SETUP_REQUEST>>>(1).unwrap();
    assert_eq!(m.get::<u64>(0), Some(amf.value()));
    assert_eq!(m.get::<u32>(1), Some(ran.0));
    assert_eq!(m.get::<ForwardsUOffset<&str>>(2), Some("amf1.example"));
    assert_eq!(m.get::<Struct<6>>(5), Some(Struct([0x99, 0xf9, 0x07, 1, 2, 3])));
    let nssai = m.get::<ForwardsUOffset<Vector<'_, Struct<4>>>>(7).unwrap();
    assert_eq!(nssai.iter().collect::<Vec<_>>(), [Struct([1, 255, 255, 255]), Struct([2, 1, 2, 3])]);
    assert_eq!(m.get::<Struct<32>>(9), Some(Struct([7; 32])));
    assert_eq!(m.get::<u64>(13), Some(u64::MAX - 1));
    assert_eq!(m.get::<Octets<'_>>(14).map(|v| v.bytes().to_vec()), Some(vec![0x7e, 0, 0x42]));
}

#[test]
fn the_flatbuffers_crate_reads_unions() {
    let (amf, ran) = names();
    let pair = UeNgapIds::UeNgapIdPair(UeNgapIdPair::new(amf, ran));
    let octets = written(UeContextReleaseCommand::new(pair, CauseNas::Deregister.into()).into());
    let pdu = root::<Checked<'_, PDU>>(&octets).unwrap();
    let m = pdu.get::<ForwardsUOffset<Checked<'_, UE_CONTEXT_RELEASE_COMMAND>>>(1).unwrap();
    let (pair, cause) = (
        m.get::<ForwardsUOffset<Checked<'_, UE_NGAP_ID_PAIR>>>(1).unwrap(),
        m.get::<ForwardsUOffset<Checked<'_, CAUSE_NAS_VALUE>>>(3).unwrap(),
    );
    assert_eq!((m.get::<u8>(0), m.get::<u8>(2)), (Some(1), Some(3)));
    assert_eq!((pair.get::<u64>(0), pair.get::<u32>(1)), (Some(amf.value()), Some(ran.0)));
    assert_eq!(cause.get::<u8>(0), Some(CauseNas::Deregister as u8));
}
