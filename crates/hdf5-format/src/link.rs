//! The messages of groups that keep links in their headers: link info (IV.A.2.c), group info (IV.A.2.k), links (IV.A.2.g).

use crate::{Fields, Result};

/// Flags of a link message.
const LENGTH: u8 = 3;
const HAS_ORDER: u8 = 4;
const HAS_TYPE: u8 = 8;
const HAS_CHARACTER_SET: u8 = 16;
/// The character set of names.
const UTF8: u8 = 1;
/// Types of links.
const HARD: u8 = 0;
const SOFT: u8 = 1;
const EXTERNAL: u8 = 64;

/// The link info message of a group without creation order and without a heap of links.
pub const IN_MESSAGES: [u8; 18] = {
    let mut message = [0xff; 18];
    (message[0], message[1]) = (0, 0);
    message
};

/// The group info message with default values only.
pub const GROUP_INFO: [u8; 2] = [0; 2];

/// A link of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The name of the link.
    pub name: Vec<u8>,
    /// Whether the name is marked as UTF-8. Symbol tables never mark a name.
    pub utf8: bool,
    /// The creation order of the link, if the group tracks it.
    pub order: Option<u64>,
    /// The target of the link.
    pub target: LinkTarget,
}

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTarget {
    /// The object at this address.
    Hard(u64),
    /// A path. It starts at the root group if it begins with a slash, and else at the group of the link.
    Soft(Vec<u8>),
    /// An object of another file.
    External {
        /// The name of the file.
        file: Vec<u8>,
        /// The path of the object in it.
        path: Vec<u8>,
    },
    /// A user-defined link, with the number of its class.
    Other(u8),
}

impl Link {
    /// Reads a link message.
    pub fn read(message: &[u8]) -> Result<Self> {
        link(message).ok_or_else(|| "an unknown link message, or one that ends early".into())
    }
}

fn link(message: &[u8]) -> Option<Link> {
    let mut fields = Fields(message);
    fields.expect(&[1])?;
    let flags = fields.u8()?;
    let has = |flag| flags & flag != 0;
    let class = if has(HAS_TYPE) { fields.u8()? } else { HARD };
    let order = if has(HAS_ORDER) {
        Some(fields.u64()?)
    } else {
        None
    };
    let utf8 = has(HAS_CHARACTER_SET) && fields.u8()? == UTF8;
    let len = fields.number(1 << (flags & LENGTH))?;
    let name = fields.take(usize::try_from(len).ok()?)?.to_vec();
    Some(Link {
        name,
        utf8,
        order,
        target: target(class, &mut fields)?,
    })
}

fn target(class: u8, fields: &mut Fields<'_>) -> Option<LinkTarget> {
    if class == HARD {
        return fields.u64().map(LinkTarget::Hard);
    }
    let len = fields.u16()?.into();
    let value = fields.take(len)?;
    Some(match class {
        SOFT => LinkTarget::Soft(value.to_vec()),
        EXTERNAL => {
            // The first byte holds version and flags.
            let mut texts = value.get(1..)?.split(|byte| *byte == 0).map(<[u8]>::to_vec);
            LinkTarget::External {
                file: texts.next()?,
                path: texts.next()?,
            }
        }
        other => LinkTarget::Other(other),
    })
}

/// A link info message for a group that keeps links in messages, with the flags of its current message. `next` is the next number
/// in creation order, if the group tracks it.
pub fn info_of_messages(message: &[u8], next: Option<u64>) -> Option<Vec<u8>> {
    const IS_INDEXED: u8 = 2;
    let flags = *message.get(1)?;
    let mut new = vec![0, flags];
    new.extend(next.iter().flat_map(|next| next.to_le_bytes()));
    // The addresses of the heap and of the indexes, all undefined.
    let places = if flags & IS_INDEXED == 0 { 2 } else { 3 };
    new.resize(new.len() + 8 * places, 0xff);
    Some(new)
}

/// The message of a hard link. `order` is its number in creation order, if the group tracks it. The last eight bytes are the
/// address.
pub fn hard(name: &[u8], utf8: bool, order: Option<u64>, address: u64) -> Option<Vec<u8>> {
    let mut message = named(name, utf8, None, order)?;
    message.extend(address.to_le_bytes());
    Some(message)
}

/// The message of a soft link to a path. `order`: as for [`hard`].
pub fn soft(name: &[u8], utf8: bool, order: Option<u64>, path: &[u8]) -> Option<Vec<u8>> {
    let mut message = named(name, utf8, Some(SOFT), order)?;
    message.extend(u16::try_from(path.len()).ok()?.to_le_bytes());
    message.extend(path);
    Some(message)
}

/// A message up to the name. The length of the name takes one byte or two.
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

    #[test]
    fn links_lead_to_objects_paths_and_files() {
        let hard = Link::read(b"\x01\0\x01a\x07\0\0\0\0\0\0\0").unwrap();
        assert_eq!((hard.order, hard.target), (None, LinkTarget::Hard(7)));
        let soft = b"\x01\x1d\x01\x05\0\0\0\0\0\0\0\x01\x02\0ab\x02\0/x";
        let found = Link::read(soft).unwrap();
        assert_eq!((&found.name[..], found.order), (&b"ab"[..], Some(5)));
        assert_eq!(found.target, LinkTarget::Soft(b"/x".to_vec()));
        let external = Link::read(b"\x01\x08\x40\x01e\x06\0\0f\0/p\0").unwrap();
        let (file, path) = (b"f".to_vec(), b"/p".to_vec());
        assert_eq!(external.target, LinkTarget::External { file, path });
        let other = Link::read(b"\x01\x08\x41\x01e\0\0").unwrap();
        assert_eq!(other.target, LinkTarget::Other(65));
        for len in 0..soft.len() {
            assert!(Link::read(&soft[..len]).is_err());
        }
    }

    #[test]
    fn links_are_read_as_they_are_written() -> Result<()> {
        for name in ["a".to_owned(), "größe".to_owned(), "n".repeat(1000)] {
            for (utf8, order) in [
                (false, None),
                (true, None),
                (false, Some(7)),
                (true, Some(7)),
            ] {
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
        Ok(())
    }
}
