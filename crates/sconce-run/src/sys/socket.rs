//! Messages with descriptors and the sender's process id, between the supervisor and init.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The longest message.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// The most descriptors in a message.
const MAX_DESCRIPTORS: usize = 16;

/// A message as it arrived.
#[derive(Debug)]
pub(crate) struct SocketMessage {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// The sender's process id as the receiver counts; known where the receiver asked for it.
    pub(crate) sender: Option<i32>,
}

/// Two ends that keep the borders of messages. The first tells the sender of each message.
///
/// # Errors
/// The kernel's, when there is no descriptor left.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::sockopt::set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
}

/// Sends one message.
///
/// # Errors
/// The kernel's: `EPIPE` when the other end is gone.
pub(crate) fn send_message(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Waits for one message; `None` when the other end is gone.
///
/// # Errors
/// The kernel's.
pub(crate) fn receive_message(socket: impl AsFd) -> io::Result<Option<SocketMessage>> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut reset = false;
    let received = loop {
        match recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            // The other end was closed with messages of ours unread. That is told once, before what
            // it had sent; read again.
            Err(rustix::io::Errno::CONNRESET) if !reset => reset = true,
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut message = SocketMessage {
        bytes: Vec::new(),
        fds: Vec::new(),
        sender: None,
    };
    for part in ancillary.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(fds) => message.fds.extend(fds),
            RecvAncillaryMessage::ScmCredentials(who) => {
                message.sender = Some(who.pid.as_raw_nonzero().get());
            }
            _ => {}
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    message.bytes = bytes;
    Ok(Some(message))
}
