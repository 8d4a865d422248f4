//! Macros that turn the declarations of messages and elements into their fast form.

/// Adds to a plan what of the fields wants one alignment.
macro_rules! fast_pass {
    ($plan:ident, $v:ident, $align:literal, $( $kind:ident $f:ident: $t:ty, $c:ty; )*) => {
        let mut slot = 0;
        $(
            if is_present!($kind $v.$f) {
                $plan.add(slot, <$c as $crate::fast::Fast<$t>>::INLINE, $align);
            }
            slot += <$c as $crate::fast::Fast<$t>>::INLINE.slots();
        )*
    };
}

/// Writes a field if it is there.
macro_rules! fast_put {
    (opt $v:expr, $t:ty, $c:ty, $spot:expr, $w:ident) => {
        if let Some(v) = &$v {
            <$c as $crate::fast::Fast<$t>>::put(v, $spot, $w)
        }
    };
    (lst $v:expr, $t:ty, $c:ty, $spot:expr, $w:ident) => {
        if !$v.is_empty() {
            <$c as $crate::fast::Fast<$t>>::put(&$v, $spot, $w)
        }
    };
    ($kind:ident $v:expr, $t:ty, $c:ty, $spot:expr, $w:ident) => {
        <$c as $crate::fast::Fast<$t>>::put(&$v, $spot, $w)
    };
}

/// Reads a field that is there or not.
macro_rules! fast_get {
    (req $table:ident, $slot:ident, $t:ty, $c:ty, $name:expr) => {
        $crate::fast::required::<$t, $c>(&$table, $slot, $name)?
    };
    (opt $table:ident, $slot:ident, $t:ty, $c:ty, $name:expr) => {
        $crate::fast::optional::<$t, $c>(&$table, $slot, $name)?
    };
    ($kind:ident $table:ident, $slot:ident, $t:ty, $c:ty, $name:expr) => {
        $crate::fast::optional::<$t, $c>(&$table, $slot, $name)?.unwrap_or_default()
    };
}

/// A sequence or message as a table.
macro_rules! fast_table {
    ($name:ident { $( $kind:ident $f:ident: $t:ty, $c:ty; )* }) => {
        #[allow(unused_assignments, unused_mut, unused_variables)] // Some have no field, or none of some alignment.
        impl $crate::fast::Fast<$name> for $crate::aper::codec::Own {
            const INLINE: whimbrel_fastwire::Inline = whimbrel_fastwire::Inline::Table;

            fn put(v: &$name, spot: whimbrel_fastwire::Spot, w: &mut whimbrel_fastwire::Writer<'_>) {
                const SLOTS: usize = 0 $( + <$c as $crate::fast::Fast<$t>>::INLINE.slots() )*;
                let mut plan = whimbrel_fastwire::Plan::<SLOTS>::new();
                fast_pass!(plan, v, 8, $( $kind $f: $t, $c; )*);
                fast_pass!(plan, v, 4, $( $kind $f: $t, $c; )*);
                fast_pass!(plan, v, 2, $( $kind $f: $t, $c; )*);
                fast_pass!(plan, v, 1, $( $kind $f: $t, $c; )*);
                let table = w.table(spot, &plan);
                let mut slot = 0;
                $(
                    let inline = <$c as $crate::fast::Fast<$t>>::INLINE;
                    fast_put!($kind v.$f, $t, $c, plan.spot(table, slot, inline), w);
                    slot += inline.slots();
                )*
            }

            fn get(slot: whimbrel_fastwire::Slot<'_, '_>) -> Result<$name, whimbrel_ids::DecodeError> {
                let table = slot.table()?;
                let mut slot = 0;
                $(
                    let $f = fast_get!($kind table, slot, $t, $c, stringify!($f));
                    slot += <$c as $crate::fast::Fast<$t>>::INLINE.slots();
                )*
                Ok($name { $($f),* })
            }

            fn declare(s: &mut whimbrel_fastwire::Schema) -> String {
                s.declare(stringify!($name), |s| {
                    let mut text = concat!("table ", stringify!($name), " {\n").to_owned();
                    $(
                        let of = <$c as $crate::fast::Fast<$t>>::declare(s);
                        let inline = <$c as $crate::fast::Fast<$t>>::INLINE;
                        text += &whimbrel_fastwire::Schema::field(
                            stringify!($f), &of, inline, stringify!($kind) == "req",
                        );
                    )*
                    text + "}\n"
                });
                stringify!($name).to_owned()
            }
        }
    };
}

/// The field positions of a message, by protocol IE id.
macro_rules! fast_places {
    ($name:ident { $( $id:literal $t:ty, $c:ty; )* }) => {
        impl $crate::fast::Places for $name {
            #[allow(unused_assignments, unused_mut, unused_variables)] // Some message has no field.
            const PLACES: &'static [(u16, usize)] = &{
                let mut next = 0;
                [$({
                    let slot = next;
                    next += <$c as $crate::fast::Fast<$t>>::INLINE.slots();
                    ($id, slot)
                }),*]
            };
        }
    };
}

/// An enumerated type as an octet.
macro_rules! fast_enumerated {
    ($name:ident) => {
        impl $crate::fast::Fast<$name> for $crate::aper::codec::Own {
            const INLINE: whimbrel_fastwire::Inline = whimbrel_fastwire::Inline::Scalar(1);

            fn put(v: &$name, spot: whimbrel_fastwire::Spot, w: &mut whimbrel_fastwire::Writer<'_>) {
                w.put(spot.at, [*v as u8]);
            }

            fn get(slot: whimbrel_fastwire::Slot<'_, '_>) -> Result<$name, whimbrel_ids::DecodeError> {
                $crate::fast::get_enumerated($name::ALL, slot)
            }

            fn declare(s: &mut whimbrel_fastwire::Schema) -> String {
                $crate::fast::declare_enumerated(stringify!($name), $name::ALL, s)
            }
        }
    };
}

/// A choice as a union: the alternatives in order, then the one for unknown alternatives.
macro_rules! fast_choice {
    ($name:ident { $( $v:ident: $t:ty, $c:ty; )* } { $($o:ident)? }) => {
        impl $crate::fast::Fast<$name> for $crate::aper::codec::Own {
            const INLINE: whimbrel_fastwire::Inline = whimbrel_fastwire::Inline::Union;

            #[allow(irrefutable_let_patterns)] // Some choices have one alternative yet.
            fn put(v: &$name, spot: whimbrel_fastwire::Spot, w: &mut whimbrel_fastwire::Writer<'_>) {
                let mut tag = 0;
                $(
                    tag += 1;
                    if let $name::$v(v) = v {
                        w.put(spot.tag, [tag]);
                        return $crate::fast::put_arm::<$t, $c>(v, spot, w);
                    }
                )*
                $(
                    if let $name::$o(v) = v {
                        w.put(spot.tag, [$crate::fast::OTHER]);
                        $crate::fast::put_arm::<$crate::container::OtherChoice, $crate::aper::codec::Own>(v, spot, w)
                    }
                )?
            }

            fn get(slot: whimbrel_fastwire::Slot<'_, '_>) -> Result<$name, whimbrel_ids::DecodeError> {
                let mut tag = 0;
                $(
                    tag += 1;
                    if slot.tag() == tag {
                        return Ok($name::$v($crate::fast::get_arm::<$t, $c>(slot)?));
                    }
                )*
                $(
                    if slot.tag() == $crate::fast::OTHER {
                        return Ok($name::$o($crate::fast::get_arm::<_, $crate::aper::codec::Own>(slot)?));
                    }
                )?
                Err(slot.error(whimbrel_ids::DecodeErrorKind::Unknown))
            }

            fn declare(s: &mut whimbrel_fastwire::Schema) -> String {
                let mut alternatives = Vec::new();
                $(
                    let table = $crate::fast::declare_arm::<$t, $c>(stringify!($name), stringify!($v), s);
                    alternatives.push((stringify!($v).to_owned(), alternatives.len() as u8 + 1, table));
                )*
                $(
                    let table = <$crate::aper::codec::Own as $crate::fast::Fast<
                        $crate::container::OtherChoice,
                    >>::declare(s);
                    alternatives.push((stringify!($o).to_owned(), $crate::fast::OTHER, table));
                )?
                s.union(stringify!($name), &alternatives);
                stringify!($name).to_owned()
            }
        }
    };
}
