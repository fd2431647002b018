//! Driver information: a block (II.B) that old superblocks name, or a message of the superblock extension (IV.A.2.u).

use std::ops::ControlFlow;

use crate::object_header::{self, Message, Mode, kind};
use crate::superblock::{Places, Superblock};
use crate::{Fields, HeaderBytes, Result, UNDEFINED, lookup3, read_vec};

/// Bytes of driver information that are read: it contains one path at most.
const MOST_BYTES: u64 = 8 << 10;

/// The file driver that wrote a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverInfo {
    /// Its name.
    pub name: [u8; 8],
    /// What it keeps of the file.
    pub info: Vec<u8>,
}

impl Superblock {
    /// The driver information of the file. `None` where it has none. Fails where it is missing or damaged.
    pub fn driver_info<B: HeaderBytes + ?Sized>(&self, file: &B) -> Result<Option<DriverInfo>> {
        let Some(at) = self.info else {
            return Ok(None);
        };
        if self.is_old() {
            return block(file, at).map(Some);
        }
        let Some(message) = message(file, at)? else {
            return Ok(None);
        };
        let info = of_message(&message.body(file)?);
        Ok(Some(
            info.ok_or("a driver information message that ends early")?,
        ))
    }

    /// The bytes that replace others so that the file has no driver information, and where they are. `None` where it has none.
    pub fn without_driver_info<B: HeaderBytes + ?Sized>(
        &self,
        file: &B,
    ) -> Result<Option<(u64, Vec<u8>)>> {
        let Some(at) = self.info else {
            return Ok(None);
        };
        if self.is_old() {
            let place = Places::of(&self.bytes)?.info;
            return Ok(Some((place, UNDEFINED.to_le_bytes().to_vec())));
        }
        message(file, at)?
            .map(|message| as_nil(file, &message))
            .transpose()
    }
}

/// Reads the driver information block.
fn block<B: HeaderBytes + ?Sized>(file: &B, at: u64) -> Result<DriverInfo> {
    const HEAD: u64 = 16;
    let head = read_vec(file, at, HEAD)?;
    let mut fields = Fields(&head);
    let mut read = || {
        fields.expect(&[0])?;
        fields.skip(3)?;
        let len = u64::from(fields.u32()?).min(MOST_BYTES);
        Some((len, fields.take(8)?.try_into().ok()?))
    };
    let (len, name) = read().ok_or("no driver information block")?;
    Ok(DriverInfo {
        name,
        info: read_vec(file, at.saturating_add(HEAD), len)?,
    })
}

/// The driver information message in the superblock extension at this address.
fn message<B: HeaderBytes + ?Sized>(file: &B, at: u64) -> Result<Option<Message>> {
    let mut found = None;
    object_header::messages(file, at, Mode::Checked, |message| {
        if message.kind == kind::DRIVER_INFO && !message.is_shared() {
            found = Some(message);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

fn of_message(body: &[u8]) -> Option<DriverInfo> {
    let mut fields = Fields(body);
    fields.expect(&[0])?;
    let name = fields.take(8)?.try_into().ok()?;
    let len = fields.u16()?;
    let info = fields.take(len.into())?.to_vec();
    Some(DriverInfo { name, info })
}

/// Bytes that make a message a NIL message, and where they are.
fn as_nil<B: HeaderBytes + ?Sized>(file: &B, message: &Message) -> Result<(u64, Vec<u8>)> {
    const SHORT: &str = "a message without a head";
    let at = message.start;
    let Some(block) = &message.block else {
        return Ok((at, vec![0; 2]));
    };
    let mut bytes = read_vec(file, block.start, block.end - block.start)?;
    let place = usize::try_from(at.checked_sub(block.start).ok_or(SHORT)?)?;
    *bytes.get_mut(place).ok_or(SHORT)? = kind::NIL as u8;
    let (sound, sum) = bytes.split_last_chunk_mut::<4>().ok_or(SHORT)?;
    *sum = lookup3(sound).to_le_bytes();
    Ok((block.start, bytes))
}
