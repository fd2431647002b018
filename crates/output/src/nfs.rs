//! Files that several nodes write, on NFS.
//!
//! A client of NFS writes whole pages where it can. What lies in a page beside the bytes of its own node it writes as it has
//! read it, over what another node has written there since. Flushes and close succeed all the same, so such a job is refused.

use h5logfs_common::fault::Fault;

use crate::ranks::Ranks;

/// Fails where the ranks that write one file, of those of a job, run on several nodes. Collective.
pub fn check_nodes(ranks: &Ranks, file_ranks: &Ranks) -> Result<(), Fault> {
    let node = u64::from(ranks.node().number);
    let (first, last) = (!file_ranks.largest(!node), file_ranks.largest(node));
    if first == last {
        return Ok(());
    }
    Err(Fault::Refused(
        "several nodes of the job would write this file, which is on NFS, and write over each other's bytes there: have the \
         ranks of one node write it, or each node a file of its own (subfiles)"
            .into(),
    ))
}
