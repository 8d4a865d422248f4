//! Macros that turn a declaration close to the ASN.1 of TS 38.413 §9.4 into a type and its codec.
//!
//! A field begins with its presence: `req` (mandatory), `opt` (`Option`), `lst` (an optional list: an empty
//! vector stands for absence) or, in messages, `dft` (mandatory with criticality "ignore": a peer that omits it gets
//! the default, TS 38.413 §10.3.5). `as` names a codec where the type alone does not say the form.

/// The type that a field has in its struct.
macro_rules! slot {
    (opt $t:ty) => { Option<$t> };
    ($kind:ident $t:ty) => { $t };
}

/// The codec of a field: the type's own, unless one is named.
macro_rules! codec {
    () => {
        $crate::aper::codec::Own
    };
    ($c:ty) => {
        $c
    };
}

/// Whether an optional field is present; a mandatory one always is.
macro_rules! is_present {
    (opt $v:expr) => {
        $v.is_some()
    };
    (lst $v:expr) => {
        !$v.is_empty()
    };
    ($kind:ident $v:expr) => {
        true
    };
}

/// Reads the presence bit of an optional field.
macro_rules! read_presence {
    (req $r:ident) => {
        true
    };
    ($kind:ident $r:ident) => {
        $r.bit()?
    };
}

/// Writes the presence bit of an optional field.
macro_rules! write_presence {
    (req $v:expr, $w:ident) => {};
    ($kind:ident $v:expr, $w:ident) => { $w.bit(is_present!($kind $v)) };
}

/// Reads a field that is there or not.
macro_rules! read_field {
    (req $p:ident, $t:ty, $c:ty, $r:ident) => {{
        let _ = $p;
        <$c as $crate::aper::Codec<$t>>::read($r)?
    }};
    (opt $p:ident, $t:ty, $c:ty, $r:ident) => {
        if $p { Some(<$c as $crate::aper::Codec<$t>>::read($r)?) } else { None }
    };
    (lst $p:ident, $t:ty, $c:ty, $r:ident) => {
        if $p { <$c as $crate::aper::Codec<$t>>::read($r)? } else { Vec::new() }
    };
}

/// Writes a field if it is there.
macro_rules! write_field {
    (opt $v:expr, $t:ty, $c:ty, $w:ident) => {
        if let Some(v) = &$v {
            <$c as $crate::aper::Codec<$t>>::write(v, $w)
        }
    };
    (lst $v:expr, $t:ty, $c:ty, $w:ident) => {
        if !$v.is_empty() {
            <$c as $crate::aper::Codec<$t>>::write(&$v, $w)
        }
    };
    ($kind:ident $v:expr, $t:ty, $c:ty, $w:ident) => {
        <$c as $crate::aper::Codec<$t>>::write(&$v, $w)
    };
}

/// Some value of a field, or its absence.
#[cfg(any(test, feature = "samples"))]
macro_rules! sample_field {
    (opt $t:ty, $c:ty, $s:ident) => {
        $s.flip().then(|| <$c as $crate::aper::Codec<$t>>::sample($s))
    };
    (lst $t:ty, $c:ty, $s:ident) => {
        if $s.flip() { <$c as $crate::aper::Codec<$t>>::sample($s) } else { Vec::new() }
    };
    ($kind:ident $t:ty, $c:ty, $s:ident) => {
        <$c as $crate::aper::Codec<$t>>::sample($s)
    };
}

/// Adds the diagnostic of a missing mandatory field.
macro_rules! note_missing {
    (req $v:ident, $d:ident, $spec:expr) => {
        if $v.is_none() {
            $d.record_missing($spec);
        }
    };
    (dft $v:ident, $d:ident, $spec:expr) => {
        if $v.is_none() {
            $d.tolerate_missing($spec);
        }
    };
    ($kind:ident $v:ident, $d:ident, $spec:expr) => {};
}

/// What a field is after its container was read.
macro_rules! settle {
    (req $v:ident) => {
        $v.ok_or($crate::aper::Fault::NotComprehended)?
    };
    (opt $v:ident) => {
        $v
    };
    ($kind:ident $v:ident) => {
        $v.unwrap_or_default()
    };
}

/// `new`: the mandatory fields as arguments, the rest absent.
macro_rules! constructor {
    (@ $name:ident [$($p:ident: $pt:ty),*] [$($d:ident)*] req $f:ident: $t:ty, $($rest:tt)*) => {
        constructor!(@ $name [$($p: $pt,)* $f: $t] [$($d)*] $($rest)*);
    };
    (@ $name:ident [$($p:ident: $pt:ty),*] [$($d:ident)*] dft $f:ident: $t:ty, $($rest:tt)*) => {
        constructor!(@ $name [$($p: $pt,)* $f: $t] [$($d)*] $($rest)*);
    };
    (@ $name:ident [$($p:ident: $pt:ty),*] [$($d:ident)*] $kind:ident $f:ident: $t:ty, $($rest:tt)*) => {
        constructor!(@ $name [$($p: $pt),*] [$($d)* $f] $($rest)*);
    };
    (@ $name:ident [$($p:ident: $pt:ty),*] [$($d:ident)*]) => {
        impl $name {
            /// With the mandatory fields; optional ones are absent.
            #[allow(clippy::too_many_arguments, clippy::new_without_default)]
            pub fn new($($p: $pt),*) -> Self {
                Self { $($p,)* $($d: Default::default()),* }
            }
        }
    };
    ($name:ident $($rest:tt)*) => { constructor!(@ $name [] [] $($rest)*); };
}

/// The first bit of an extensible sequence; `closed` sequences have no extension marker.
macro_rules! read_marker {
    (closed $r:ident) => {
        false
    };
    ($r:ident) => {
        $r.bit()?
    };
}

/// Writes the first bit of an extensible sequence.
macro_rules! write_marker {
    (closed $w:ident) => {};
    ($w:ident) => {
        $w.bit(false)
    };
}

/// An extensible `SEQUENCE` whose last root component is `iE-Extensions OPTIONAL`.
macro_rules! sequence {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $([$form:ident])? {
            $( $(#[$fm:meta])* $kind:ident $f:ident: $t:ty $(as $c:ty)? ),* $(,)?
            $( ; $( $(#[$xm:meta])* $xid:literal $xcrit:ident $xkind:ident $x:ident: $xt:ty $(as $xc:ty)? ),* $(,)? )?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$fm])* pub $f: slot!($kind $t), )*
            $($( $(#[$xm])*
                #[doc = concat!("\n\nExtension ", stringify!($xid), ", criticality ", stringify!($xcrit), ".")]
                pub $x: slot!($xkind $xt), )*)?
        }

        constructor!($name $($kind $f: $t,)* $($($xkind $x: $xt,)*)?);

        fast_table!($name {
            $( $kind $f: $t, codec!($($c)?); )*
            $($( $xkind $x: $xt, codec!($($xc)?); )*)?
        });

        impl $crate::aper::Aper for $name {
            fn read(r: &mut $crate::aper::Reader<'_>) -> Result<Self, $crate::aper::Fault> {
                let additions = read_marker!($($form)? r);
                $( let $f = read_presence!($kind r); )*
                let extensions = r.bit()?;
                $( let $f = read_field!($kind $f, $t, codec!($($c)?), r); )*
                $($( let mut $x = None; )*)?
                if extensions {
                    $crate::container::read_extensions(r, |_id, _r| {
                        match _id {
                            $($( $xid => $x = Some(<codec!($($xc)?) as $crate::aper::Codec<$xt>>::read(_r)?), )*)?
                            _ => return Ok(false),
                        }
                        #[allow(unreachable_code)]
                        Ok(true)
                    })?;
                }
                if additions {
                    r.skip_additions()?;
                }
                Ok(Self { $($f,)* $($( $x: extension_slot!($xkind $x) ),*)? })
            }

            fn write(&self, w: &mut $crate::aper::Writer<'_>) {
                write_marker!($($form)? w);
                $( write_presence!($kind self.$f, w); )*
                let extensions: u16 = 0 $($( + u16::from(is_present!($xkind self.$x)) )*)?;
                w.bit(extensions > 0);
                $( write_field!($kind self.$f, $t, codec!($($c)?), w); )*
                if extensions > 0 {
                    w.whole(u64::from(extensions), 1, 65_535);
                    $($(
                        if is_present!($xkind self.$x) {
                            w.whole($xid, 0, 65_535);
                            w.bits(criticality!($xcrit) as u64, 2);
                            w.open(|w| write_field!($xkind self.$x, $xt, codec!($($xc)?), w));
                        }
                    )*)?
                }
            }

            #[cfg(any(test, feature = "samples"))]
            fn sample(s: &mut $crate::aper::sample::Source) -> Self {
                Self {
                    $( $f: sample_field!($kind $t, codec!($($c)?), s), )*
                    $($( $x: sample_field!($xkind $xt, codec!($($xc)?), s), )*)?
                }
            }
        }
    };
}

/// What an extension is after its container was read.
macro_rules! extension_slot {
    (opt $v:ident) => {
        $v
    };
    (lst $v:ident) => {
        $v.unwrap_or_default()
    };
}

/// The value of a criticality keyword.
macro_rules! criticality {
    (reject) => {
        $crate::Criticality::Reject
    };
    (ignore) => {
        $crate::Criticality::Ignore
    };
    (notify) => {
        $crate::Criticality::Notify
    };
}

/// A sequence of one container of protocol IEs: a message, or a transfer built like one.
macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$fm:meta])* $id:literal $crit:ident $kind:ident $f:ident: $t:ty $(as $c:ty)? ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$fm])*
                #[doc = concat!("\n\nIE ", stringify!($id), ", criticality ", stringify!($crit), ".")]
                pub $f: slot!($kind $t), )*
        }

        constructor!($name $($kind $f: $t,)*);

        fast_table!($name { $( $kind $f: $t, codec!($($c)?); )* });
        fast_places!($name { $( $id $t, codec!($($c)?); )* });

        impl $crate::container::IeSequence for $name {
            const IES: &'static [$crate::container::IeSpec] = &[
                $( $crate::container::IeSpec {
                    id: $id, criticality: criticality!($crit), name: stringify!($f),
                }, )*
            ];

            #[allow(unused_assignments, unused_mut)]
            fn read_body(
                r: &mut $crate::aper::Reader<'_>,
                diagnosis: &mut $crate::container::Diagnosis,
            ) -> Result<Self, $crate::aper::Fault> {
                $( let mut $f = None; )*
                let mut ies = $crate::container::Container::open(r, Self::IES)?;
                while let Some(id) = ies.next(diagnosis)? {
                    match id {
                        $( $id => $f = ies.value::<$t, codec!($($c)?)>(diagnosis)?, )*
                        _ => {}
                    }
                }
                let mut _specs = Self::IES.iter();
                $( let _spec = _specs.next(); note_missing!($kind $f, diagnosis, _spec); )*
                Ok(Self { $($f: settle!($kind $f)),* })
            }

            fn write_body(&self, w: &mut $crate::aper::Writer<'_>) {
                let count: u16 = 0 $( + u16::from(is_present!($kind self.$f)) )*;
                w.bit(false);
                w.whole(u64::from(count), 0, 65_535);
                $(
                    if is_present!($kind self.$f) {
                        w.ie($id, criticality!($crit), |w| write_field!($kind self.$f, $t, codec!($($c)?), w));
                    }
                )*
            }

            #[cfg(any(test, feature = "samples"))]
            fn sample(_s: &mut $crate::aper::sample::Source) -> Self {
                Self { $( $f: sample_field!($kind $t, codec!($($c)?), _s), )* }
            }
        }
    };
}

/// An `ENUMERATED`: root values, then after `+` those that later versions added; without `+` it is not extensible.
macro_rules! enumerated {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($v:ident $s:literal),* $(,)? } $(+ { $($x:ident $xs:literal),* $(,)? })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $( #[doc = concat!("`", $s, "`")] $v, )*
            $($( #[doc = concat!("`", $xs, "`")] $x, )*)?
        }

        impl $name {
            const ROOT: &'static [Self] = &[$(Self::$v),*];
            /// Every value, in the order of the standard.
            pub const ALL: &'static [Self] = &[$(Self::$v,)* $($(Self::$x,)*)?];

            /// The standard's name of the value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$v => $s,)* $($(Self::$x => $xs,)*)? }
            }
        }

        fast_enumerated!($name);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::aper::Aper for $name {
            fn read(r: &mut $crate::aper::Reader<'_>) -> Result<Self, $crate::aper::Fault> {
                let root = Self::ROOT.len();
                let index = enumerated!(@read r, root $(, { $($x)* })?);
                Self::ALL.get(index).copied().ok_or($crate::aper::Fault::NotComprehended)
            }

            fn write(&self, w: &mut $crate::aper::Writer<'_>) {
                let (index, root) = (*self as u64, Self::ROOT.len() as u64);
                enumerated!(@write w, index, root $(, { $($x)* })?);
            }

            #[cfg(any(test, feature = "samples"))]
            fn sample(s: &mut $crate::aper::sample::Source) -> Self {
                Self::ALL[s.number() as usize % Self::ALL.len()]
            }
        }
    };
    (@read $r:ident, $root:ident) => { $r.whole(0, $root as u64 - 1)? as usize };
    (@read $r:ident, $root:ident, { $($x:ident)* }) => {
        if $r.bit()? {
            $root.saturating_add(usize::try_from($r.normally_small()?).unwrap_or(usize::MAX))
        } else {
            $r.whole(0, $root as u64 - 1)? as usize
        }
    };
    (@write $w:ident, $index:ident, $root:ident) => { $w.whole($index, 0, $root - 1) };
    (@write $w:ident, $index:ident, $root:ident, { $($x:ident)* }) => {
        $w.bit($index >= $root);
        if $index >= $root { $w.normally_small($index - $root) } else { $w.whole($index, 0, $root - 1) }
    };
}

/// A `CHOICE` whose last root alternative is `choice-Extensions`; `;` precedes the extensions that are known, and
/// `other` (a variant name) keeps those that are not.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$vm:meta])* $v:ident($t:ty $(as $c:ty)?) ),* $(,)?
            $( ; $( $(#[$xm:meta])* $xid:literal $xcrit:ident $x:ident($xt:ty $(as $xc:ty)?) ),* $(,)? )?
        } $(other $o:ident)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // The common alternative is the large one, more often than not.
        pub enum $name {
            $( $(#[$vm])* $v($t), )*
            $($( $(#[$xm])*
                #[doc = concat!("\n\nExtension ", stringify!($xid), ", criticality ", stringify!($xcrit), ".")]
                $x($xt), )*)?
            $( /// An alternative of a later release, stored unread.
               $o($crate::container::OtherChoice), )?
        }

        fast_choice!($name {
            $( $v: $t, codec!($($c)?); )*
            $($( $x: $xt, codec!($($xc)?); )*)?
        } { $($o)? });

        impl $name {
            /// The index of `choice-Extensions`.
            const EXTENSIONS: u64 = [$(stringify!($v)),*].len() as u64;
        }

        impl $crate::aper::Aper for $name {
            fn read(r: &mut $crate::aper::Reader<'_>) -> Result<Self, $crate::aper::Fault> {
                let index = r.whole(0, Self::EXTENSIONS)?;
                let mut at = 0;
                $(
                    if index == at {
                        return Ok(Self::$v(<codec!($($c)?) as $crate::aper::Codec<$t>>::read(r)?));
                    }
                    at += 1;
                )*
                debug_assert_eq!(index, at);
                let id = r.whole(0, 65_535)? as u16;
                let _criticality = r.bits(2)?;
                match id {
                    $($( $xid => r.open(|r| Ok(Self::$x(<codec!($($xc)?) as $crate::aper::Codec<$xt>>::read(r)?))), )*)?
                    _ => {
                        $( return Ok(Self::$o($crate::container::OtherChoice::read(id, _criticality, r)?)); )?
                        #[allow(unreachable_code)]
                        Err($crate::aper::Fault::NotComprehended)
                    }
                }
            }

            #[allow(unused_assignments, irrefutable_let_patterns)] // Some choices have one alternative yet.
            fn write(&self, w: &mut $crate::aper::Writer<'_>) {
                let mut at = 0;
                $(
                    if let Self::$v(v) = self {
                        w.whole(at, 0, Self::EXTENSIONS);
                        return <codec!($($c)?) as $crate::aper::Codec<$t>>::write(v, w);
                    }
                    at += 1;
                )*
                $($(
                    if let Self::$x(v) = self {
                        w.whole(Self::EXTENSIONS, 0, Self::EXTENSIONS);
                        w.whole($xid, 0, 65_535);
                        w.bits(criticality!($xcrit) as u64, 2);
                        return w.open(|w| <codec!($($xc)?) as $crate::aper::Codec<$xt>>::write(v, w));
                    }
                )*)?
                $(
                    if let Self::$o(v) = self {
                        w.whole(Self::EXTENSIONS, 0, Self::EXTENSIONS);
                        v.write(w);
                    }
                )?
            }

            #[cfg(any(test, feature = "samples"))]
            fn sample(s: &mut $crate::aper::sample::Source) -> Self {
                let samples: &[fn(&mut $crate::aper::sample::Source) -> Self] = &[
                    $( |s| Self::$v(<codec!($($c)?) as $crate::aper::Codec<$t>>::sample(s)), )*
                    $($( |s| Self::$x(<codec!($($xc)?) as $crate::aper::Codec<$xt>>::sample(s)), )*)?
                ];
                samples[s.number() as usize % samples.len()](s)
            }
        }
    };
}
