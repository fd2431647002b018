//! The subject of a thread's messages. The program's log gives each subject a share, so a user's files or requests do not
//! crowd out the errors of another user.

use std::cell::Cell;

/// The subject of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// No user: the program itself.
    Program,
    /// The files of the user with this number.
    FilesOf(u32),
    /// Requests of the user with this number for files of other users.
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

/// The subject of this thread's messages now.
pub fn subject() -> Subject {
    let State { owner, caller } = STATE.get();
    match (owner, caller) {
        (Some(owner), Some(caller)) if owner == caller => Subject::FilesOf(owner),
        (_, Some(caller)) => Subject::RequestsOf(caller),
        (Some(owner), None) => Subject::FilesOf(owner),
        (None, None) => Subject::Program,
    }
}

/// Makes files of `owner` the subject of this thread's messages until the [`Scope`] ends.
pub fn about(owner: u32) {
    STATE.set(State {
        owner: Some(owner),
        ..STATE.get()
    });
}

/// Makes requests of the ordinary user `caller` the subject of this thread's messages until the [`Scope`] ends.
pub fn asked_by(caller: u32) {
    STATE.set(State {
        caller: Some(caller),
        ..STATE.get()
    });
}

/// Begins a piece of work with no subject yet. The end of the scope restores the previous subject.
pub fn scope() -> Scope {
    Scope {
        before: STATE.take(),
    }
}

/// A piece of work: see [`scope`].
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
