//! Messages to the service manager, as in sd_notify(3): one datagram to the socket that `NOTIFY_SOCKET` names.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::fs::NOTIFY_SOCKET as VARIABLE;

/// The service manager that has started this process, if there is one.
#[derive(Debug)]
pub struct Notify {
    socket: Option<OsString>,
}

impl Notify {
    pub fn from_environment() -> Self {
        let socket = std::env::var_os(VARIABLE);
        Notify {
            socket: socket.filter(|name| !name.is_empty()),
        }
    }

    /// Sends `state`, one line for each variable. A failure is only logged: the mount works without a service manager.
    pub fn say(&self, state: &str) {
        if let Some(name) = &self.socket
            && let Err(e) = send(name, state)
        {
            log::warn!("{VARIABLE}: cannot notify the service manager of {state:?}: {e}");
        }
    }
}

fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sent = UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    if sent < state.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram, name: &OsStr) -> String {
        let notify = Notify {
            socket: Some(name.to_owned()),
        };
        notify.say("READY=1\nSTATUS=here");
        let mut buf = [0; 100];
        let len = socket.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..len]).into_owned()
    }

    #[test]
    fn a_socket_has_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        assert_eq!(received(&socket, path.as_os_str()), "READY=1\nSTATUS=here");
        let name = format!("h5logfs-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let name = OsString::from(format!("@{name}"));
        assert_eq!(received(&socket, &name), "READY=1\nSTATUS=here");
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        Notify { socket: None }.say("READY=1");
        let gone = Some("/nowhere/socket".into());
        Notify { socket: gone }.say("READY=1");
    }
}
