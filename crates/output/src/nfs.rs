//! Files that several nodes write, on NFS.
//!
//! An NFS client writes whole pages if it can. Such a page contains old bytes of other nodes, which overwrite the newer
//! bytes of these nodes. Flushes and close report no error, so such a job is refused.

use h5logfs_common::fault::Fault;

use crate::ranks::Ranks;

/// Fails if the ranks that share one file (`file_ranks`) run on several nodes of the job (`ranks`). Collective.
pub fn check_nodes(ranks: &Ranks, file_ranks: &Ranks) -> Result<(), Fault> {
    let node = u64::from(ranks.node().number);
    let (first, last) = (!file_ranks.largest(!node), file_ranks.largest(node));
    if first == last {
        return Ok(());
    }
    Err(Fault::Refused(
        "several nodes of the job would write this file, which is on NFS, and overwrite each other's bytes there: let the \
         ranks of one node write it, or give each node a file of its own (subfiles)"
            .into(),
    ))
}
