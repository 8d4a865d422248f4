//! Bodies of the service-based interface, those of Release 17, in each form in which functions can exchange them. The JSON is the product's own.
//! For the others `types` describes each body once, as a schema of protobuf does, and from that come
//!
//! - a *view* of the body: a struct with the body's members whose texts and octets are borrowed,
//! - a message of protobuf, from a view and back,
//! - a table of FlatBuffers, from a view and back.
//!
//! A view is made of a body without a check, and a body of a view with the checks of the JSON's reader. The flat form of shared memory is the
//! view in postcard: its reader gets a view again, whose texts stay where they came. An empty array is none, as protobuf has it.

use std::marker::PhantomData;

use flatbuffers::{
    FlatBufferBuilder, Follow, ForwardsUOffset, InvalidFlatbuffer, Push, SIZE_VOFFSET, Table,
    TableFinishedWIPOffset, TableVerifier, VOffsetT, Vector, Verifiable, Verifier, WIPOffset,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use whimbrel_sbi_types::{BoundedList, BoundedMap};

/// The type of a view's member.
macro_rules! lent {
    ($a:lifetime required string) => { &$a str };
    ($a:lifetime required bytes) => { &$a [u8] };
    ($a:lifetime required uint32) => { u32 };
    ($a:lifetime required uint64) => { u64 };
    ($a:lifetime required int64) => { i64 };
    ($a:lifetime required bool) => { bool };
    ($a:lifetime required message $of:ident) => { $of<$a> };
    ($a:lifetime optional $($kind:tt)+) => { Option<lent!($a required $($kind)+)> };
    ($a:lifetime repeated $($kind:tt)+) => { Vec<lent!($a required $($kind)+)> };
}

/// A view with its messages of protobuf and FlatBuffers.
macro_rules! view {
    ($name:ident { $($member:ident: $label:ident $kind:ident $($of:ident)?,)* }) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(in crate::l25gc) struct $name<'a> {
            $(#[serde(borrow)] $member: lent!('a $label $kind $($of)?),)*
            #[serde(skip)]
            lifetime: PhantomData<&'a ()>,
        }

        const _: () = {
            #[derive(Clone, PartialEq, prost::Message)]
            pub(crate) struct Protobuf {
                $(#[prost($kind, $label)] $member: <lent!('static $label $kind $($of)?) as Member<'static>>::Owned,)*
            }

            impl<'a> Message<'a> for $name<'a> {
                type Protobuf = Protobuf;

                fn protobuf(&self) -> Protobuf {
                    Protobuf { $($member: Member::own(&self.$member),)* }
                }

                fn of_protobuf(message: &'a Protobuf) -> Self {
                    Self { $($member: Member::lend(&message.$member),)* lifetime: PhantomData }
                }

                fn table(&self, builder: &mut Builder) -> WIPOffset<TableFinishedWIPOffset> {
                    $(let $member = Member::push(&self.$member, builder);)*
                    let table = builder.start_table();
                    let mut slots = slots();
                    $(if let (slot, Some(pushed)) = (slots.next_slot(), $member) {
                        builder.push_slot_always(slot, pushed);
                    })*
                    builder.end_table(table)
                }

                fn verify(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
                    let table = verifier.visit_table(at)?;
                    let mut slots = slots();
                    $(let table = visit::<lent!('a $label $kind $($of)?)>(table, stringify!($member), slots.next_slot())?;)*
                    table.finish();
                    Ok(())
                }

                fn of_table(table: &Rooted<'a, Self>) -> Option<Self> {
                    let mut slots = slots();
                    // SAFETY: `verify` has looked for the same members at the same slots.
                    Some(unsafe { Self { $($member: find(&table.0, slots.next_slot())?,)* lifetime: PhantomData } })
                }
            }
        };
    };
}

/// Bodies that are objects, by their members.
macro_rules! objects {
    ($($module:ident::$name:ident { $($member:ident: $label:ident $kind:ident $($of:ident)?,)* })*) => {$(
        view! { $name { $($member: $label $kind $($of)?,)* } }
        body! { $module::$name = $name }

        impl<'a> Real<'a, $name<'a>> for $module::$name {
            fn view(&'a self) -> $name<'a> {
                $name { $($member: Real::view(&self.$member),)* lifetime: PhantomData }
            }

            fn real(view: $name<'a>) -> Option<Self> {
                Some(Self { $($member: Real::real(view.$member)?,)* })
            }
        }
    )*};
}

/// Bodies that are one of several, by these.
macro_rules! eithers {
    ($($module:ident::$name:ident { $($variant:ident $member:ident: $kind:ident $($of:ident)?,)* })*) => {$(
        view! { $name { $($member: optional $kind $($of)?,)* } }
        body! { $module::$name = $name }

        impl<'a> Real<'a, $name<'a>> for $module::$name {
            fn view(&'a self) -> $name<'a> {
                match self {
                    $(Self::$variant(it) => $name { $member: Some(Real::view(it)), ..$name::default() },)*
                }
            }

            fn real(view: $name<'a>) -> Option<Self> {
                $(if let Some(it) = view.$member {
                    return Real::real(it).map(Self::$variant);
                })*
                None
            }
        }
    )*};
}

/// Entries of maps, by what their names stand for.
macro_rules! entries {
    ($($name:ident of $of:ident;)*) => {$(
        view! { $name { name: required string, value: optional message $of, } }

        impl<'a> Entry<'a> for $name<'a> {
            type Value = $of<'a>;

            fn of(name: &'a str, value: Option<$of<'a>>) -> Self {
                Self { name, value, lifetime: PhantomData }
            }

            fn parts(self) -> (&'a str, Option<$of<'a>>) {
                (self.name, self.value)
            }
        }
    )*};
}

/// A body with its view, also as the value of a map.
macro_rules! body {
    ($real:path = $view:ident) => {
        impl Body for $real {
            type Protobuf = <$view<'static> as Message<'static>>::Protobuf;
            type View<'a> = $view<'a>;

            fn lend(&self) -> $view<'_> {
                Real::view(self)
            }

            fn of_view(view: $view<'_>) -> Option<Self> {
                Real::real(view)
            }
        }

        impl<'a> Real<'a, Option<$view<'a>>> for $real {
            fn view(&'a self) -> Option<$view<'a>> {
                Some(Real::view(self))
            }

            fn real(view: Option<$view<'a>>) -> Option<Self> {
                Real::real(view?)
            }
        }
    };
}

mod operations;
mod types;

pub(super) use operations::{
    AmfRegistration, Form, GenerateAuthData, N1N2MessageTransfer, PostSmContexts, SmPolicies,
    UeAuthentications, UpdateSmContexts,
};

pub(super) type Builder = FlatBufferBuilder<'static>;

/// A body of a request or of an answer.
pub(super) trait Body: Serialize + DeserializeOwned + Sync + Send + 'static {
    type Protobuf: prost::Message + Default;
    type View<'a>: Message<'a, Protobuf = Self::Protobuf> + Serialize + Deserialize<'a>;

    fn lend(&self) -> Self::View<'_>;
    /// `None` for what the JSON's reader would refuse.
    fn of_view(view: Self::View<'_>) -> Option<Self>;
}

pub(super) fn to_protobuf<B: Body>(body: &B) -> Vec<u8> {
    prost::Message::encode_to_vec(&body.lend().protobuf())
}

pub(super) fn of_protobuf<B: Body>(octets: impl prost::bytes::Buf) -> Option<B> {
    let message: B::Protobuf = prost::Message::decode(octets).ok()?;
    B::of_view(B::View::of_protobuf(&message))
}

/// Writes a FlatBuffer to `builder`, in place of what was there.
pub(super) fn to_flatbuffer<B: Body>(body: &B, builder: &mut Builder) {
    builder.reset();
    let table = body.lend().table(builder);
    builder.finish_minimal(table);
}

pub(super) fn of_flatbuffer<B: Body>(octets: &[u8]) -> Option<B> {
    let root = flatbuffers::root::<Rooted<'_, B::View<'_>>>(octets).ok()?;
    B::of_view(B::View::of_table(&root)?)
}

/// Writes the flat form to `out`, in place of what was there.
pub(super) fn to_flat<B: Body>(body: &B, out: &mut Vec<u8>) {
    struct Into<'a>(&'a mut Vec<u8>);

    impl postcard::ser_flavors::Flavor for Into<'_> {
        type Output = ();

        fn try_push(&mut self, octet: u8) -> postcard::Result<()> {
            self.0.push(octet);
            Ok(())
        }

        fn try_extend(&mut self, octets: &[u8]) -> postcard::Result<()> {
            self.0.extend_from_slice(octets);
            Ok(())
        }

        fn finalize(self) -> postcard::Result<()> {
            Ok(())
        }
    }

    out.clear();
    // Neither a view nor a list of octets refuses anything.
    let _ = postcard::serialize_with_flavor(&body.lend(), Into(out));
}

/// Reads the flat form in place.
pub(super) fn of_flat<'a, B: Body>(octets: &'a [u8]) -> Option<B::View<'a>> {
    let (view, rest) = postcard::take_from_bytes(octets).ok()?;
    rest.is_empty().then_some(view)
}

/// A body, or a value within one, which has the form `V` in a view.
pub(super) trait Real<'a, V>: Sized {
    fn view(&'a self) -> V;
    /// `None` for what a JSON reader would refuse.
    fn real(view: V) -> Option<Self>;
}

impl<'a, R: Real<'a, V>, V> Real<'a, Option<V>> for Option<R> {
    fn view(&'a self) -> Option<V> {
        self.as_ref().map(R::view)
    }

    fn real(view: Option<V>) -> Option<Self> {
        view.map_or(Some(None), |view| R::real(view).map(Some))
    }
}

impl<'a, R: Real<'a, V>, V, const MIN: usize, const MAX: usize> Real<'a, Vec<V>>
    for BoundedList<R, MIN, MAX>
{
    fn view(&'a self) -> Vec<V> {
        self.iter().map(R::view).collect()
    }

    fn real(view: Vec<V>) -> Option<Self> {
        Self::new(view.into_iter().map(R::real).collect::<Option<_>>()?)
    }
}

impl<'a, K, R, E, const MAX: usize> Real<'a, Vec<E>> for BoundedMap<K, R, MAX>
where
    K: Real<'a, &'a str> + Ord,
    R: Real<'a, Option<E::Value>>,
    E: Entry<'a>,
{
    fn view(&'a self) -> Vec<E> {
        self.iter().map(|(name, value)| E::of(name.view(), value.view())).collect()
    }

    fn real(view: Vec<E>) -> Option<Self> {
        let n = view.len();
        let entries = view.into_iter().map(|entry| {
            let (name, value) = entry.parts();
            Some((K::real(name)?, R::real(value)?))
        });
        Self::new(entries.collect::<Option<_>>()?).filter(|map| map.len() == n)
    }
}

/// An array or a map, which may be missing.
trait Several {}

impl<R, const MIN: usize, const MAX: usize> Several for BoundedList<R, MIN, MAX> {}

impl<K, R, const MAX: usize> Several for BoundedMap<K, R, MAX> {}

impl<'a, R: Several + Real<'a, Vec<V>>, V> Real<'a, Vec<V>> for Option<R> {
    fn view(&'a self) -> Vec<V> {
        self.as_ref().map_or(Vec::new(), R::view)
    }

    fn real(view: Vec<V>) -> Option<Self> {
        if view.is_empty() { Some(None) } else { R::real(view).map(Some) }
    }
}

/// An entry of a map.
trait Entry<'a> {
    type Value;

    fn of(name: &'a str, value: Option<Self::Value>) -> Self;
    fn parts(self) -> (&'a str, Option<Self::Value>);
}

/// A view, with the messages that are made of it.
pub(super) trait Message<'a>: Sized {
    type Protobuf: prost::Message + Default;

    fn protobuf(&self) -> Self::Protobuf;
    fn of_protobuf(message: &'a Self::Protobuf) -> Self;
    fn table(&self, builder: &mut Builder) -> WIPOffset<TableFinishedWIPOffset>;
    fn verify(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer>;
    fn of_table(table: &Rooted<'a, Self>) -> Option<Self>;
}

/// A verified table of FlatBuffers, of which a view can be made.
pub(super) struct Rooted<'a, M>(Table<'a>, PhantomData<M>);

impl<'a, M> Follow<'a> for Rooted<'a, M> {
    type Inner = Self;

    unsafe fn follow(octets: &'a [u8], at: usize) -> Self {
        // SAFETY: the caller checked that such a table is there.
        Self(unsafe { Table::new(octets, at) }, PhantomData)
    }
}

impl<'a, M: Message<'a>> Verifiable for Rooted<'a, M> {
    fn run_verifier(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
        M::verify(verifier, at)
    }
}

/// A member of a view that is there.
trait Kind<'a>: Sized {
    type Owned;
    type Follows: Follow<'a> + Verifiable + 'a;
    type Pushed: Push + Copy;

    fn own(&self) -> Self::Owned;
    fn lend(owned: &'a Self::Owned) -> Self;
    fn push(&self, builder: &mut Builder) -> Self::Pushed;
    fn found(found: <Self::Follows as Follow<'a>>::Inner) -> Option<Self>;
}

impl<'a> Kind<'a> for &'a str {
    type Owned = String;
    type Follows = ForwardsUOffset<&'a str>;
    type Pushed = WIPOffset<&'static str>;

    fn own(&self) -> String {
        (*self).into()
    }

    fn lend(owned: &'a String) -> Self {
        owned
    }

    fn push(&self, builder: &mut Builder) -> Self::Pushed {
        builder.create_string(self)
    }

    fn found(found: &'a str) -> Option<Self> {
        Some(found)
    }
}

impl<'a> Kind<'a> for &'a [u8] {
    type Owned = Vec<u8>;
    type Follows = ForwardsUOffset<Vector<'a, u8>>;
    type Pushed = WIPOffset<Vector<'static, u8>>;

    fn own(&self) -> Vec<u8> {
        (*self).into()
    }

    fn lend(owned: &'a Vec<u8>) -> Self {
        owned
    }

    fn push(&self, builder: &mut Builder) -> Self::Pushed {
        builder.create_vector(self)
    }

    fn found(found: Vector<'a, u8>) -> Option<Self> {
        Some(found.bytes())
    }
}

macro_rules! plain {
    ($($number:ty)*) => {$(
        impl<'a> Kind<'a> for $number {
            type Owned = Self;
            type Follows = Self;
            type Pushed = Self;

            fn own(&self) -> Self {
                *self
            }

            fn lend(owned: &Self) -> Self {
                *owned
            }

            fn push(&self, _: &mut Builder) -> Self {
                *self
            }

            fn found(found: Self) -> Option<Self> {
                Some(found)
            }
        }
    )*};
}

plain! { u32 u64 i64 bool }

impl<'a, M: Message<'a> + 'a> Kind<'a> for M {
    type Owned = M::Protobuf;
    type Follows = ForwardsUOffset<Rooted<'a, M>>;
    type Pushed = WIPOffset<TableFinishedWIPOffset>;

    fn own(&self) -> M::Protobuf {
        self.protobuf()
    }

    fn lend(owned: &'a M::Protobuf) -> Self {
        M::of_protobuf(owned)
    }

    fn push(&self, builder: &mut Builder) -> Self::Pushed {
        self.table(builder)
    }

    fn found(found: Rooted<'a, M>) -> Option<Self> {
        M::of_table(&found)
    }
}

/// A member of a view: it is mandatory, optional, or there are several.
trait Member<'a>: Sized {
    const MANDATORY: bool;
    type Owned;
    type Follows: Follow<'a> + Verifiable + 'a;
    type Pushed: Push;

    fn own(&self) -> Self::Owned;
    fn lend(owned: &'a Self::Owned) -> Self;
    fn push(&self, builder: &mut Builder) -> Option<Self::Pushed>;
    fn found(found: Option<<Self::Follows as Follow<'a>>::Inner>) -> Option<Self>;
}

impl<'a, K: Kind<'a>> Member<'a> for K {
    const MANDATORY: bool = true;
    type Owned = K::Owned;
    type Follows = K::Follows;
    type Pushed = K::Pushed;

    fn own(&self) -> K::Owned {
        K::own(self)
    }

    fn lend(owned: &'a K::Owned) -> Self {
        K::lend(owned)
    }

    fn push(&self, builder: &mut Builder) -> Option<K::Pushed> {
        Some(K::push(self, builder))
    }

    fn found(found: Option<<K::Follows as Follow<'a>>::Inner>) -> Option<Self> {
        K::found(found?)
    }
}

impl<'a, K: Kind<'a>> Member<'a> for Option<K> {
    const MANDATORY: bool = false;
    type Owned = Option<K::Owned>;
    type Follows = K::Follows;
    type Pushed = K::Pushed;

    fn own(&self) -> Self::Owned {
        self.as_ref().map(K::own)
    }

    fn lend(owned: &'a Self::Owned) -> Self {
        owned.as_ref().map(K::lend)
    }

    fn push(&self, builder: &mut Builder) -> Option<K::Pushed> {
        self.as_ref().map(|it| it.push(builder))
    }

    fn found(found: Option<<K::Follows as Follow<'a>>::Inner>) -> Option<Self> {
        found.map_or(Some(None), |found| K::found(found).map(Some))
    }
}

impl<'a, K: Kind<'a, Pushed = WIPOffset<P>>, P: 'static> Member<'a> for Vec<K>
where
    Vector<'a, K::Follows>: Verifiable,
{
    const MANDATORY: bool = false;
    type Owned = Vec<K::Owned>;
    type Follows = ForwardsUOffset<Vector<'a, K::Follows>>;
    type Pushed = WIPOffset<Vector<'static, ForwardsUOffset<P>>>;

    fn own(&self) -> Self::Owned {
        self.iter().map(K::own).collect()
    }

    fn lend(owned: &'a Self::Owned) -> Self {
        owned.iter().map(K::lend).collect()
    }

    fn push(&self, builder: &mut Builder) -> Option<Self::Pushed> {
        if self.is_empty() {
            return None;
        }
        let pushed: Vec<_> = self.iter().map(|it| it.push(builder)).collect();
        Some(builder.create_vector(&pushed))
    }

    fn found(found: Option<Vector<'a, K::Follows>>) -> Option<Self> {
        found.map_or(Some(Vec::new()), |found| found.iter().map(K::found).collect())
    }
}

/// The places of a table's members, one after the other.
struct Slots(VOffsetT);

impl Slots {
    fn next_slot(&mut self) -> VOffsetT {
        self.0 += SIZE_VOFFSET as VOffsetT;
        self.0
    }
}

/// Behind the two lengths that a table begins with.
fn slots() -> Slots {
    Slots(SIZE_VOFFSET as VOffsetT)
}

fn visit<'v, 'o, 'b, 'a, M: Member<'a>>(
    table: TableVerifier<'v, 'o, 'b>,
    name: &'static str,
    slot: VOffsetT,
) -> Result<TableVerifier<'v, 'o, 'b>, InvalidFlatbuffer> {
    table.visit_field::<M::Follows>(name, slot, M::MANDATORY)
}

/// # Safety
///
/// A verifier has looked for such a member at this slot.
unsafe fn find<'a, M: Member<'a>>(table: &Table<'a>, slot: VOffsetT) -> Option<M> {
    // SAFETY: that is the caller's promise.
    M::found(unsafe { table.get::<M::Follows>(slot, None) })
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// Each form of a body.
    fn all_forms_hold_the_same<B: Body + PartialEq + Debug>(body: &B) {
        let json = whimbrel_sbi_types::to_vec(body);
        assert_eq!(whimbrel_sbi_types::from_slice::<B>(&json).as_ref(), Ok(body));
        assert_eq!(of_protobuf::<B>(&*to_protobuf(body)).as_ref(), Some(body));
        let mut builder = Builder::new();
        to_flatbuffer(body, &mut builder);
        assert_eq!(of_flatbuffer::<B>(builder.finished_data()).as_ref(), Some(body));
        let mut flat = Vec::new();
        to_flat(body, &mut flat);
        assert_eq!(of_flat::<B>(&flat).and_then(B::of_view).as_ref(), Some(body));

        for end in 0..flat.len() {
            assert!(of_flat::<B>(&flat[..end]).is_none(), "{end} of {} octets", flat.len());
        }
        flat.push(0);
        assert!(of_flat::<B>(&flat).is_none(), "an octet too many");
        flat.pop();
        // Any octet may be another one: there is a view or none, and a body or none.
        for at in 0..flat.len() {
            for octet in [0, 1, 0x7f, 0x80, 0xff] {
                let was = std::mem::replace(&mut flat[at], octet);
                let _ = of_flat::<B>(&flat).and_then(B::of_view);
                flat[at] = was;
            }
        }
        for end in 0..builder.finished_data().len() {
            let _ = of_flatbuffer::<B>(&builder.finished_data()[..end]);
        }
    }

    fn of_both<F: Form>()
    where
        F::Request: PartialEq + Debug,
        F::Answer: PartialEq + Debug,
    {
        all_forms_hold_the_same(F::sample().request());
        all_forms_hold_the_same(F::sample().answer());
    }

    #[test]
    fn all_forms_of_a_message_hold_the_same_and_no_part_of_one_is_read() {
        of_both::<PostSmContexts>();
        of_both::<UpdateSmContexts>();
        of_both::<N1N2MessageTransfer>();
        of_both::<UeAuthentications>();
        of_both::<GenerateAuthData>();
        of_both::<AmfRegistration>();
        of_both::<SmPolicies>();
    }

    #[test]
    fn what_the_reader_of_json_refuses_is_refused_in_each_form() {
        let mut view = PostSmContexts::sample().request().lend();
        assert!(<PostSmContexts as Form>::Request::of_view(view.clone()).is_some());
        view.refuse();
        assert!(<PostSmContexts as Form>::Request::of_view(view).is_none());
    }
}
