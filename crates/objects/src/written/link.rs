//! Messages of groups whose links are messages of their headers: link info (IV.A.2.c), group info (IV.A.2.k), links (IV.A.2.g).

/// The link info message: no order of links is kept, and no heap has any.
pub const IN_MESSAGES: [u8; 18] = {
    let mut message = [0xff; 18];
    (message[0], message[1]) = (0, 0);
    message
};

/// The group info message: nothing but usual values.
pub const GROUP_INFO: [u8; 2] = [0; 2];

const HAS_ORDER: u8 = 4;
const HAS_TYPE: u8 = 8;
const HAS_CHARACTER_SET: u8 = 16;
const UTF8: u8 = 1;

/// A link info message of a group whose links are messages, in place of another one of it. `next`: the place of the next link in the
/// order of their creation, where the group keeps that.
pub fn info_of_messages(message: &[u8], next: Option<u64>) -> Option<Vec<u8>> {
    const IS_INDEXED: u8 = 2;
    let flags = *message.get(1)?;
    let mut new = vec![0, flags];
    new.extend(next.iter().flat_map(|next| next.to_le_bytes()));
    // Neither a heap nor indexes.
    let places = if flags & IS_INDEXED == 0 { 2 } else { 3 };
    new.resize(new.len() + 8 * places, 0xff);
    Some(new)
}

/// The message of a hard link. `order`: its place in the order of creation, where the group keeps that. Its last eight bytes are the address.
pub fn hard(name: &[u8], utf8: bool, order: Option<u64>, address: u64) -> Option<Vec<u8>> {
    let mut message = named(name, utf8, None, order)?;
    message.extend(address.to_le_bytes());
    Some(message)
}

/// The message of a soft link to a path.
pub fn soft(name: &[u8], utf8: bool, order: Option<u64>, path: &[u8]) -> Option<Vec<u8>> {
    const SOFT: u8 = 1;
    let mut message = named(name, utf8, Some(SOFT), order)?;
    message.extend(u16::try_from(path.len()).ok()?.to_le_bytes());
    message.extend(path);
    Some(message)
}

/// A message up to the name. The length of the name has one byte, or two.
fn named(name: &[u8], utf8: bool, class: Option<u8>, order: Option<u64>) -> Option<Vec<u8>> {
    let len = u16::try_from(name.len()).ok()?;
    let len_bytes = if len > 0xff { 2 } else { 1 };
    let mut flags = len_bytes - 1;
    if class.is_some() {
        flags |= HAS_TYPE;
    }
    if utf8 {
        flags |= HAS_CHARACTER_SET;
    }
    if order.is_some() {
        flags |= HAS_ORDER;
    }
    let mut message = vec![1, flags];
    message.extend(class);
    message.extend(order.iter().flat_map(|order| order.to_le_bytes()));
    message.extend(utf8.then_some(UTF8));
    message.extend(&len.to_le_bytes()[..len_bytes.into()]);
    message.extend(name);
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Link;
    use crate::{LinkTarget, Result};

    #[test]
    fn links_are_read_as_they_are_written() -> Result<()> {
        for name in ["a".to_owned(), "größe".to_owned(), "n".repeat(1000)] {
            for utf8 in [false, true] {
                for order in [None, Some(7)] {
                    let wanted = |target| Link {
                        name: name.clone().into_bytes(),
                        utf8,
                        order,
                        target,
                    };
                    let message = hard(name.as_bytes(), utf8, order, 0x1234).unwrap();
                    assert_eq!(Link::read(&message)?, wanted(LinkTarget::Hard(0x1234)));
                    let message = soft(name.as_bytes(), utf8, order, b"/x").unwrap();
                    let target = LinkTarget::Soft(b"/x".to_vec());
                    assert_eq!(Link::read(&message)?, wanted(target));
                }
            }
        }
        Ok(())
    }
}
