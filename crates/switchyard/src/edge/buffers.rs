//! The kernel's buffers of connections.

use std::io;

use tokio::net::TcpListener;

/// Room for the largest page of a list. The system's own size grows to 4 MB for each client that
/// does not read. A third of it must be free before a slow but steady client is seen to read.
#[cfg(unix)]
const SEND_BUFFER_BYTES: u32 = 256 * 1024;

/// Sets the size of the send buffer of all connections, which inherit it from their listener.
#[cfg(unix)]
pub(super) fn bound(listener: &TcpListener) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    let same = std::net::TcpStream::from(listener.as_fd().try_clone_to_owned()?);
    tokio::net::TcpSocket::from_std_stream(same).set_send_buffer_size(SEND_BUFFER_BYTES)
}

/// Other systems keep their own size.
#[cfg(not(unix))]
pub(super) fn bound(_: &TcpListener) -> io::Result<()> {
    Ok(())
}
