//! What the messages of a thread are about. The log has a share for each subject, so that neither a user's files nor a
//! user's requests crowd out the errors of another user.

use std::cell::Cell;

/// What messages are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// No user: the program itself.
    Program,
    /// The files of the user with this number.
    FilesOf(u32),
    /// What the user with this number asked of files of other users.
    RequestsOf(u32),
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    owner: Option<u32>,
    caller: Option<u32>,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State { owner: None, caller: None }) };
}

/// What the messages of this thread are about now.
pub fn subject() -> Subject {
    let State { owner, caller } = STATE.get();
    match (owner, caller) {
        (Some(owner), Some(caller)) if owner == caller => Subject::FilesOf(owner),
        (_, Some(caller)) => Subject::RequestsOf(caller),
        (Some(owner), None) => Subject::FilesOf(owner),
        (None, None) => Subject::Program,
    }
}

/// From here on the messages of this thread are about files of `owner`, until the [`Scope`] ends.
pub fn about(owner: u32) {
    STATE.set(State {
        owner: Some(owner),
        ..STATE.get()
    });
}

/// From here on the messages of this thread are about a request of an ordinary user, until the [`Scope`] ends.
pub fn asked_by(caller: u32) {
    STATE.set(State {
        caller: Some(caller),
        ..STATE.get()
    });
}

/// Begins a piece of work that is about no file and no user yet. At its end holds again what held before.
pub fn scope() -> Scope {
    Scope {
        before: STATE.take(),
    }
}

/// See [`scope`].
#[derive(Debug)]
pub struct Scope {
    before: State,
}

impl Drop for Scope {
    fn drop(&mut self) {
        STATE.set(self.before);
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
            assert_eq!(subject(), Subject::Program);
            about(8);
            assert_eq!(subject(), Subject::FilesOf(8));
        }
        assert_eq!(subject(), Subject::FilesOf(7));
    }

    #[test]
    fn a_strangers_request_is_not_about_the_owner() {
        let _scope = scope();
        asked_by(7);
        assert_eq!(subject(), Subject::RequestsOf(7));
        about(8);
        assert_eq!(subject(), Subject::RequestsOf(7));
        about(7);
        assert_eq!(subject(), Subject::FilesOf(7));
    }
}
