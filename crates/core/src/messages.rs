//! Whose files the messages of a thread are about. The log gives the messages about each user's files a share of their
//! own, so that no user's files crowd out the errors of another's.

use std::cell::Cell;

thread_local! {
    static OWNER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The user whose files the messages of this thread are about, if they are about files.
pub fn owner() -> Option<u32> {
    OWNER.get()
}

/// From here on the messages of this thread are about files of `owner`, until the [`Scope`] ends.
pub fn about(owner: u32) {
    OWNER.set(Some(owner));
}

/// Begins a piece of work that is about no file yet. At its end holds again what held before.
pub fn scope() -> Scope {
    Scope {
        before: OWNER.take(),
    }
}

/// See [`scope`].
#[derive(Debug)]
pub struct Scope {
    before: Option<u32>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        OWNER.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_in_a_scope_ends_with_it() {
        about(7);
        {
            let _scope = scope();
            assert_eq!(owner(), None);
            about(8);
            assert_eq!(owner(), Some(8));
        }
        assert_eq!(owner(), Some(7));
    }
}
