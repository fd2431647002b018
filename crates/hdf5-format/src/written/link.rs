//! Messages of groups whose links are messages of their headers: link info (IV.A.2.c), group info (IV.A.2.k), links (IV.A.2.g).

/// The link info message: no order of links is kept, and no heap has any.
pub const IN_MESSAGES: [u8; 18] = {
    let mut message = [0xff; 18];
    (message[0], message[1]) = (0, 0);
    message
};

/// The group info message: nothing but usual values.
pub const GROUP_INFO: [u8; 2] = [0; 2];

const HAS_TYPE: u8 = 8;
const HAS_CHARACTER_SET: u8 = 16;
const UTF8: u8 = 1;

/// The message of a hard link. Its last eight bytes are the address.
pub fn hard(name: &[u8], utf8: bool, address: u64) -> Option<Vec<u8>> {
    let mut message = named(name, utf8, None)?;
    message.extend(address.to_le_bytes());
    Some(message)
}

/// The message of a soft link to a path.
pub fn soft(name: &[u8], utf8: bool, path: &[u8]) -> Option<Vec<u8>> {
    const SOFT: u8 = 1;
    let mut message = named(name, utf8, Some(SOFT))?;
    message.extend(u16::try_from(path.len()).ok()?.to_le_bytes());
    message.extend(path);
    Some(message)
}

/// A message up to the name. The length of the name has one byte, or two.
fn named(name: &[u8], utf8: bool, class: Option<u8>) -> Option<Vec<u8>> {
    let len = u16::try_from(name.len()).ok()?;
    let len_bytes = if len > 0xff { 2 } else { 1 };
    let mut flags = len_bytes - 1;
    if class.is_some() {
        flags |= HAS_TYPE;
    }
    if utf8 {
        flags |= HAS_CHARACTER_SET;
    }
    let mut message = vec![1, flags];
    message.extend(class);
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
                let wanted = |target| Link {
                    name: name.clone().into_bytes(),
                    utf8,
                    order: None,
                    target,
                };
                let message = hard(name.as_bytes(), utf8, 0x1234).unwrap();
                assert_eq!(Link::read(&message)?, wanted(LinkTarget::Hard(0x1234)));
                let message = soft(name.as_bytes(), utf8, b"/x").unwrap();
                let target = LinkTarget::Soft(b"/x".to_vec());
                assert_eq!(Link::read(&message)?, wanted(target));
            }
        }
        Ok(())
    }
}
