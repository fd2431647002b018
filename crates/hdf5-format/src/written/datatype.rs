//! Datatype messages (IV.A.2.d), in the versions that libhdf5 writes for its oldest readers.

/// The size in bytes of an element that lies in a heap: its length, and the place of the heap object.
const IN_HEAP: u32 = 16;

/// The message of a little-endian integer of `size` bytes.
pub fn integer(size: u8, is_signed: bool) -> [u8; 12] {
    let signed = if is_signed { 8 } else { 0 };
    [0x10, signed, 0, 0, size, 0, 0, 0, 0, 0, 8 * size, 0]
}

/// The message of a little-endian IEEE 754 number of 4 or 8 bytes. `None` for other sizes.
pub fn float(size: u32) -> Option<Vec<u8>> {
    let ([sign, exponent, bits], bias) = match size {
        4 => ([31, 23, 8], 127u32),
        8 => ([63, 52, 11], 1023),
        _ => return None,
    };
    let precision = 8 * size as u8;
    // The highest bit of the mantissa is 1 and is not stored.
    let mut message = front(1, 1, [0x20, sign, 0], size);
    message.extend([0, 0, precision, 0, exponent, bits, 0, exponent]);
    message.extend(bias.to_le_bytes());
    Some(message)
}

/// The message of a little-endian bit field of `size` bytes.
pub fn bitfield(size: u8) -> Vec<u8> {
    let mut message = front(1, 4, [0; 3], size.into());
    message.extend([0, 0, 8 * size, 0]);
    message
}

/// The message of an opaque type of `size` bytes. `None` if the tag is too long.
pub fn opaque(size: u32, tag: &str) -> Option<Vec<u8>> {
    let len = tag.len().next_multiple_of(8);
    let mut message = front(1, 5, [u8::try_from(len).ok()?, 0, 0], size);
    message.extend(tag.as_bytes());
    message.resize(message.len() + len - tag.len(), 0);
    Some(message)
}

/// The message of an enumeration, from its integer type and the names and values of its members.
pub fn enumeration(
    version: u8,
    size: u32,
    base: &[u8],
    names: &[&str],
    values: &[u8],
) -> Option<Vec<u8>> {
    let mut message = front(version, 8, number(names.len())?, size);
    message.extend(base);
    names.iter().for_each(|name| push_name(&mut message, name));
    message.extend(values);
    Some(message)
}

/// The message of an array of `size` bytes. `base` is the message of its elements.
pub fn array(size: u32, dims: &[u32], base: &[u8]) -> Option<Vec<u8>> {
    let mut message = front(2, 10, [0; 3], size);
    message.extend([u8::try_from(dims.len()).ok()?, 0, 0, 0]);
    message.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
    // The permutation of the dimensions, which is always the identity.
    message.extend((0..dims.len() as u32).flat_map(u32::to_le_bytes));
    message.extend(base);
    Some(message)
}

/// The padding of a text that ends with a zero.
pub const ZERO_TERMINATED: u8 = 0;
/// The padding of a text that is padded with zeros.
pub const ZERO_PADDED: u8 = 1;

/// The message of a text of `size` bytes with this padding.
pub fn text(size: u32, padding: u8, utf8: bool) -> Vec<u8> {
    front(1, 3, [padding | u8::from(utf8) << 4, 0, 0], size)
}

/// The message of a text of variable length in UTF-8.
pub fn variable_text() -> Vec<u8> {
    const IS_TEXT: u8 = 1;
    const UTF8: u8 = 1;
    let mut message = front(1, 9, [IS_TEXT, UTF8, 0], IN_HEAP);
    message.extend(integer(1, false));
    message
}

/// The message of a reference to an object.
pub fn reference() -> Vec<u8> {
    front(1, 7, [0; 3], 8)
}

/// The message of a list of variable length. `base` is the message of its elements.
pub fn list_of(base: &[u8]) -> Vec<u8> {
    let mut message = front(1, 9, [0; 3], IN_HEAP);
    message.extend(base);
    message
}

/// The message of a compound type of `size` bytes. Members have names, offsets and messages.
pub fn compound(version: u8, size: u32, members: &[(&str, u32, Vec<u8>)]) -> Option<Vec<u8>> {
    /// The dimension fields of a member in version 1, for a member without dimensions.
    const NO_DIMENSIONS: [u8; 28] = [0; 28];
    let mut message = front(version, 6, number(members.len())?, size);
    for (name, offset, datatype) in members {
        push_name(&mut message, name);
        message.extend(offset.to_le_bytes());
        if version == 1 {
            message.extend(NO_DIMENSIONS);
        }
        message.extend(datatype);
    }
    Some(message)
}

/// Adds a name with its padding: at least one zero, up to a multiple of eight bytes.
fn push_name(message: &mut Vec<u8>, name: &str) {
    let end = message.len() + (name.len() + 1).next_multiple_of(8);
    message.extend(name.as_bytes());
    message.resize(end, 0);
}

/// The message of a numeric type in this byte order. `message` is the message of the little-endian type.
pub fn ordered(message: impl Into<Vec<u8>>, big_endian: bool) -> Vec<u8> {
    let mut message = message.into();
    message[1] |= u8::from(big_endian);
    message
}

fn number(members: usize) -> Option<[u8; 3]> {
    let [low, high] = u16::try_from(members).ok()?.to_le_bytes();
    Some([low, high, 0])
}

fn front(version: u8, class: u8, bits: [u8; 3], size: u32) -> Vec<u8> {
    let mut message = vec![version << 4 | class];
    message.extend(bits);
    message.extend(size.to_le_bytes());
    message
}
