//! Messages of object headers (IV.A), and shared messages that lie in another header.

use std::ops::ControlFlow;

use crate::object_header::{self, Mode, kind};
use crate::{Fields, HeaderBytes, Result, read_vec};

/// Messages of an object.
#[derive(Debug)]
pub struct Header(Vec<Message>);

/// Message types that only groups have.
pub const OF_GROUPS: [u16; 2] = [kind::SYMBOL_TABLE, kind::LINK_INFO];

/// A message and its data.
#[derive(Debug)]
pub struct Message {
    /// The message type.
    pub kind: u16,
    /// The data of the message. For a shared message, the place of the data.
    body: Vec<u8>,
    is_shared: bool,
    /// The creation order among messages of this type.
    pub order: Option<u16>,
}

impl Header {
    /// Reads the messages of the types `kinds` in the header at `address`.
    pub fn read<B: HeaderBytes + ?Sized>(bytes: &B, address: u64, kinds: &[u16]) -> Result<Self> {
        Header::read_until(bytes, address, kinds, &[])
    }

    /// Reads messages up to the first one of a type in `last`, which is included. See [`read`](Self::read).
    pub fn read_until<B: HeaderBytes + ?Sized>(
        bytes: &B,
        address: u64,
        kinds: &[u16],
        last: &[u16],
    ) -> Result<Self> {
        let mut messages = Vec::new();
        object_header::messages(bytes, address, Mode::Checked, |message| {
            let is_last = last.contains(&message.kind);
            if is_last || kinds.contains(&message.kind) {
                messages.push(Message {
                    kind: message.kind,
                    body: message.body(bytes)?,
                    is_shared: message.is_shared(),
                    order: message.order,
                });
            }
            Ok(flow_until(is_last))
        })?;
        Ok(Header(messages))
    }

    /// The types of all messages in the header at `address`, up to the first type that only groups have.
    pub fn kinds<B: HeaderBytes + ?Sized>(bytes: &B, address: u64) -> Result<Vec<u16>> {
        let mut kinds = Vec::new();
        object_header::messages(bytes, address, Mode::Checked, |message| {
            if !kinds.contains(&message.kind) {
                kinds.push(message.kind);
            }
            Ok(flow_until(OF_GROUPS.contains(&message.kind)))
        })?;
        Ok(kinds)
    }

    /// The first message of type `kind`.
    pub fn first(&self, kind: u16) -> Option<&Message> {
        self.0.iter().find(|message| message.kind == kind)
    }

    /// All messages of type `kind`.
    pub fn all(&self, kind: u16) -> impl Iterator<Item = &Message> {
        self.0.iter().filter(move |message| message.kind == kind)
    }
}

fn flow_until(is_last: bool) -> ControlFlow<()> {
    if is_last {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

impl Message {
    /// The data of the message, also if it is shared.
    pub fn data<B: HeaderBytes + ?Sized>(&self, bytes: &B) -> Result<Vec<u8>> {
        if self.is_shared {
            shared(bytes, self.kind, &self.body)
        } else {
            Ok(self.body.clone())
        }
    }

    /// Whether the data lie in this header.
    pub fn is_own(&self) -> bool {
        !self.is_shared
    }

    /// The data of a message that is not shared. Fails for a shared message.
    pub fn own_data(&self) -> Result<&[u8]> {
        if self.is_shared {
            return Err(format!("a shared message of type {}", self.kind).into());
        }
        Ok(&self.body)
    }
}

/// The data of a shared message of type `kind`. `place` says where they lie (IV.A.2, shared messages).
pub fn shared<B: HeaderBytes + ?Sized>(bytes: &B, kind: u16, place: &[u8]) -> Result<Vec<u8>> {
    let address = shared_address(place)?;
    let mut found = None;
    object_header::messages(bytes, address, Mode::Checked, |message| {
        if message.kind != kind {
            return Ok(ControlFlow::Continue(()));
        }
        if message.is_shared() {
            return Err("a shared message that refers to another shared message".into());
        }
        found = Some(read_vec(bytes, message.data, message.len.into())?);
        Ok(ControlFlow::Break(()))
    })
    .map_err(|fault| fault.at(format_args!("the shared message at address {address}")))?;
    found.ok_or_else(|| format!("no shared message of type {kind} at address {address}").into())
}

/// The address of the object header that holds a shared message.
pub fn shared_address(place: &[u8]) -> Result<u64> {
    const IN_HEAP: u8 = 1;
    const SHORT: &str = "a shared message that ends early";
    let mut fields = Fields(place);
    let (version, kind) = fields.u8().zip(fields.u8()).ok_or(SHORT)?;
    match (version, kind) {
        // Reserved bytes, and the place of a name in a local heap.
        (1, _) => fields.skip(6 + 8).ok_or(SHORT)?,
        (3, IN_HEAP) => {
            return Err(
                "a message in the heap of shared messages: h5logfs does not read these".into(),
            );
        }
        (2 | 3, _) => {}
        _ => return Err(format!("a shared message of version {version}").into()),
    }
    Ok(fields.u64().ok_or(SHORT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_versions_name_an_object_header() {
        let address = 77u64.to_le_bytes();
        let first = [&[1, 0], &[0; 14][..], &address].concat();
        let second = [&[2, 0][..], &address].concat();
        let third = [&[3, 2][..], &address].concat();
        for place in [first, second, third] {
            assert_eq!(shared_address(&place), Ok(77));
            assert!(shared_address(&place[..9]).is_err());
        }
        let in_heap = shared_address(&[3, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(in_heap.unwrap_err().to_string().contains("heap"));
        assert!(shared_address(&[4, 2, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
