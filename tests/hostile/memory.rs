//! Small files whose numbers demand much memory. The daemon stays within its limit, and only the reader of such a file
//! gets an error.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use h5logfs_log::logvol::flags::{DEFL, ENC, HEADER, MUL};

use crate::arena::{Arena, Attack};
use crate::common::encoder::filter::{self, Filter};
use crate::common::encoder::{Dataset, Entry, LogFile, Spelling, Type, int_att, log_dataset, raw};
use crate::common::people::ALICE;

/// A log of one dataset with `dims` bytes. `tables` names refer to one table of `len` bytes, which begins with
/// `front`; the rest is a hole.
fn sparse_log(path: &Path, dims: &[u64], tables: usize, front: &[u8], len: u64) {
    let file = raw::create_file(path, 0, false);
    Dataset::new("data", 0, Type::U8, dims).create(&file);
    let group = raw::create_group(&file, "_LOG");
    let data = log_dataset(&group, "_ld_0", 1);
    raw::write(&data, &[1]);
    let table = log_dataset(&group, "_md_0", len as usize);
    for number in 1..tables {
        raw::hard_link(&group, "_md_0", &group, &format!("_md_{number}"));
    }
    int_att(&file, [1, 1, tables as i32, 0x00a, 1]);
    let place = raw::dataset_offset(&table);
    drop((data, table, group, file));
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(front, place).unwrap();
}

/// The start of a table of one section with one entry, which has these flags and `body_len` bytes after its header.
fn one_entry(flags: i32, body_len: u64) -> Vec<u8> {
    let size = HEADER + body_len;
    let mut front = 1i64.to_le_bytes().to_vec();
    front.extend((16 + size as i64).to_le_bytes());
    front.extend((size as i32).to_le_bytes());
    front.extend(0i32.to_le_bytes());
    front.extend(flags.to_le_bytes());
    // Place of the data: outside of the file.
    front.extend(0i64.to_le_bytes());
    front.extend(1i64.to_le_bytes());
    front
}

/// One encoded entry of rank 32 that declares `blocks` blocks: 16 bytes each in the file, 512 decoded.
fn encoded_blocks(path: &Path, blocks: u64) {
    let body = 4 + 8 * (31 + 2 * blocks);
    let mut front = one_entry(MUL | ENC, body);
    front.extend((blocks as i32).to_le_bytes());
    (0..31).for_each(|_| front.extend(1i64.to_le_bytes()));
    sparse_log(path, &[1; 32], 1, &front, 16 + HEADER + body);
}

fn xattr(file: &Path, name: &str) {
    // The answer does not matter.
    let _ = rustix::fs::getxattr(file, name, &mut [0; 64]);
}

fn read(file: &Path) {
    let _ = fs::read(file);
}

/// Makes a file with `make` under many names, and runs `act` on all of them at once.
fn attack(name: &str, files: usize, make: impl FnOnce(&Path), act: impl Fn(&Attack, &Path) + Sync) {
    let Some(arena) = Arena::new() else { return };
    let dir = arena.source(ALICE);
    let of = |number: usize| format!("bomb-{number}.h5");
    make(&dir.join(of(0)));
    for number in 1..files {
        fs::hard_link(dir.join(of(0)), dir.join(of(number))).unwrap();
    }
    arena.give(ALICE);
    let shown: Vec<PathBuf> = (0..files).map(|n| arena.shown(ALICE).join(of(n))).collect();
    arena.attack(name, |attack| {
        attack.together(files, |number| act(attack, &shown[number]));
    });
}

#[test]
fn an_entry_that_declares_many_blocks() {
    let make = |path: &Path| encoded_blocks(path, 110_000_000);
    attack(
        "110 million blocks of rank 32: covered",
        1,
        make,
        |_, file| {
            xattr(file, "user.h5logfs.covered");
        },
    );
}

#[test]
fn an_entry_that_declares_many_blocks_is_read() {
    let make = |path: &Path| encoded_blocks(path, 110_000_000);
    attack("110 million blocks of rank 32: cat", 1, make, |_, file| {
        read(file)
    });
}

#[test]
fn blocks_under_many_names() {
    let make = |path: &Path| encoded_blocks(path, 2_000_000);
    attack(
        "2 million blocks, 70 names: covered",
        70,
        make,
        |_, file| {
            xattr(file, "user.h5logfs.covered");
        },
    );
}

/// All tables lie at the address of one dataset of 8.9 MB.
#[test]
fn tables_at_one_address() {
    let entries = 200_000u64;
    let make = |path: &Path| {
        let mut table = 1i64.to_le_bytes().to_vec();
        table.extend((16 + entries as i64 * (HEADER as i64 + 16)).to_le_bytes());
        for start in 0..entries as i64 {
            let entry = one_entry(0, 16);
            table.extend(&entry[16..]);
            table.extend((start % 16).to_le_bytes());
            table.extend(1i64.to_le_bytes());
        }
        sparse_log(path, &[16], 2500, &table, table.len() as u64);
    };
    attack(
        "2,500 tables at one address: records",
        4,
        make,
        |_, file| {
            xattr(file, "user.h5logfs.records");
        },
    );
}

/// Each deflated selection inflates to 4 MiB.
#[test]
#[ignore = "half a minute: make attack"]
fn deflated_selections() {
    let blocks: u64 = 1 << 18;
    let coordinates: Vec<u8> = {
        let starts = (0..blocks).map(|n| n % 7);
        let counts = (0..blocks).map(|_| 1);
        starts.chain(counts).flat_map(u64::to_le_bytes).collect()
    };
    let mut body = (blocks as i32).to_le_bytes().to_vec();
    body.extend(filter::deflate(&coordinates));
    let entry = Entry::many(0, Vec::new(), vec![7; 8]).spelled(Spelling::Bytes {
        flags: MUL | DEFL,
        body,
    });
    let log = LogFile::with(
        vec![Dataset::new("data", 0, Type::U8, &[16])],
        vec![entry.claiming(0, blocks as i64); 8],
    );
    attack(
        "8 deflated selections, 8 names",
        8,
        |path| log.write(path),
        |_, file| read(file),
    );
}

/// A chunk that just fits into the cache, under many names.
#[test]
fn large_chunks() {
    let side = 200 << 20;
    let dataset = Dataset::new("data", 0, Type::U8, &[4 * side]).chunked(&[side]);
    // Two entries for each chunk, so that it must be assembled.
    let entries = (0..8).map(|n| Entry::one(0, &[n * side / 2], &[16], vec![1; 16]));
    let log = LogFile::with(vec![dataset], entries.collect());
    attack(
        "chunks of 200 MiB, 8 names",
        8,
        |path| log.write(path),
        |attack, file| {
            let Ok(file) = File::open(file) else { return };
            let len = file.metadata().unwrap().len();
            let mut at = 8192;
            while at < len && !attack.is_over() {
                let _ = file.read_at(&mut [0; 64], at);
                at += side;
            }
        },
    );
}

/// Records that inflate to nearly the size of the cache.
#[test]
#[ignore = "half a minute: make attack"]
fn large_records() {
    let raw = vec![0u8; 240 << 20];
    let dataset = Dataset::new("data", 0, Type::U8, &[raw.len() as u64])
        .chunked(&[1 << 20])
        .filtered(&[Filter::deflate(9)]);
    let stored = filter::apply(&[Filter::deflate(9)], &raw);
    let entry = Entry::one(0, &[0], &[raw.len() as u64], stored);
    let log = LogFile::with(vec![dataset], vec![entry]);
    attack(
        "records of 240 MiB, 8 names",
        8,
        |path| log.write(path),
        |_, file| {
            let Ok(file) = File::open(file) else { return };
            let _ = file.read_at(&mut [0; 64], 1 << 20);
        },
    );
}

/// Open logs with user blocks that take all memory for views, and one more log of another user.
#[test]
fn large_user_blocks() {
    let Some(arena) = Arena::new() else { return };
    let dir = arena.source(ALICE);
    // User blocks of 64 MiB down to 1 KiB, so that they fill the memory completely.
    let names: Vec<String> = (0..59).map(|number| format!("block-{number}.h5")).collect();
    for (number, name) in names.iter().enumerate() {
        let file = raw::create_file(
            &dir.join(name),
            64 << 20 >> (number.saturating_sub(8) / 3),
            false,
        );
        let dataset = Dataset::new("data", 0, Type::U8, &[16]);
        dataset.create(&file);
        let group = raw::create_group(&file, "_LOG");
        drop(log_dataset(&group, "_ld_0", 1));
        int_att(&file, [1, 0, 0, 0x00a, 1]);
    }
    arena.give(ALICE);
    arena.attack("59 open logs with user blocks", |attack| {
        let open = |name: &String| File::open(arena.shown(ALICE).join(name));
        let held: Vec<_> = names.iter().map(open).collect();
        while !attack.is_over() {
            for file in held.iter().flatten() {
                let _ = file.read_at(&mut [0; 4096], 1 << 20);
            }
        }
    });
}
