//! The standard input.

use std::io;

/// Whether the input is closed, which would be read as an empty one: the runtime has put the null device, open both
/// ways, in its place, which `</dev/null` is not.
#[cfg(unix)]
pub fn is_closed(stdin: &io::Stdin) -> bool {
    use nix::fcntl::{fcntl, FcntlArg, OFlag};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    let flags = fcntl(stdin, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    let both_ways = flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR);
    let null = std::fs::metadata("/dev/null").map(|null| null.rdev());
    let device = stdin.as_fd().try_clone_to_owned().map(std::fs::File::from);
    let device = device
        .and_then(|input| input.metadata())
        .map(|input| input.rdev());
    matches!((null, device), (Ok(null), Ok(device)) if both_ways && null == device)
}

#[cfg(not(unix))]
pub fn is_closed(_stdin: &io::Stdin) -> bool {
    false
}
