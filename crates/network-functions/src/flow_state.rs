//! States of functions, declared by their fields.

/// Declares a function's state of one connection: a struct of numbers, and how other nodes are sent it.
///
/// Each field has the type of its attribute, which is never used again for another one. A field is an unsigned or signed integer of the
/// fixed sizes. It is sent in network byte order unless it is 0. Fields lie side by side without padding, so `&mut` of a field is not
/// possible; fields are read and written by value.
///
/// ```
/// use network_functions::prelude::*;
///
/// flow_state! {
///     /// What a connection has carried.
///     pub struct Carried: state_attribute::PRIVATE_FIRST {
///         /// Bytes.
///         1 => pub bytes: u64,
///         /// Packets.
///         2 => pub packets: u32,
///     }
/// }
///
/// let mut carried = Carried::default();
/// carried.packets += 7;
/// let mut attributes = Vec::new();
/// carried.encode(&mut attributes);
/// assert_eq!(Carried::decode(&attributes)?, carried);
/// assert_eq!((attributes.len(), size_of::<Carried>()), (8, 12));
/// # Ok::<(), TlvError>(())
/// ```
#[macro_export]
macro_rules! flow_state {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident: $attribute:path {
            $($(#[$field_meta:meta])* $kind:literal => $field_visibility:vis $field:ident: $type:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone,
            Copy,
            PartialEq,
            Eq,
            Debug,
            Default,
            $crate::zerocopy::FromBytes,
            $crate::zerocopy::IntoBytes,
            $crate::zerocopy::Immutable,
            $crate::zerocopy::KnownLayout,
        )]
        #[zerocopy(crate = "::network_functions::zerocopy")]
        #[repr(C, packed)]
        $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $type,)+
        }

        impl $crate::function::FlowState for $name {
            const ATTRIBUTE: u16 = $attribute;

            fn encode(&self, out: &mut $crate::flow_state::Bytes) {
                $(
                    let value = self.$field;
                    if value != 0 {
                        $crate::flow_state::tlv::put(out, $kind, &value.to_be_bytes());
                    }
                )+
            }

            fn decode(attributes: &[u8]) -> ::core::result::Result<Self, $crate::flow_state::tlv::TlvError> {
                let mut state = Self::default();
                for attribute in $crate::flow_state::tlv::read(attributes) {
                    match attribute? {
                        $(
                            ($kind, value) => {
                                let bytes = value.try_into();
                                let bytes = bytes.map_err(|_| $crate::flow_state::tlv::TlvError::ValueSize($kind))?;
                                state.$field = <$type>::from_be_bytes(bytes);
                            }
                        )+
                        _ => {}
                    }
                }
                ::core::result::Result::Ok(state)
            }
        }
    };
}

// What the macro's output refers to.
#[doc(hidden)]
pub use alloc::vec::Vec as ByteVec;
#[doc(hidden)]
pub use flow::wire::tlv;

#[doc(hidden)]
pub type Bytes = ByteVec<u8>;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use crate::prelude::*;

    flow_state! {
        struct Three: state_attribute::PRIVATE_FIRST {
            1 => small: u8,
            2 => large: u64,
            7 => signed: i16,
        }
    }

    #[test]
    fn fields_are_sent_unless_they_are_zero_and_read_back() {
        let mut three = Three { small: 5, large: 0, signed: -2 };
        let mut attributes = Vec::new();
        three.encode(&mut attributes);
        assert_eq!(attributes.len(), 2 * 8);
        assert_eq!(Three::decode(&attributes), Ok(three));
        three.large = u64::MAX;
        three.encode(&mut attributes);
        assert_eq!(Three::decode(&attributes), Ok(three), "the last of several attributes of a type counts");
        assert_eq!((size_of::<Three>(), Three::decode(&[])), (11, Ok(Three::default())));
    }

    #[test]
    fn unknown_attributes_are_skipped_and_wrong_sizes_are_refused() {
        let mut attributes = Vec::new();
        super::tlv::put(&mut attributes, 9, &[1, 2, 3]);
        assert_eq!(Three::decode(&attributes), Ok(Three::default()));
        super::tlv::put(&mut attributes, 2, &[1, 2, 3]);
        assert_eq!(Three::decode(&attributes), Err(TlvError::ValueSize(2)));
    }
}
