//! Opening what lies in a data folder, where anything may have the name of a file.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading, also through a symbolic link.
///
/// Anything else of that name is an error at once: opened as a file is, a FIFO without a writer would stop the process
/// for ever, and a device would have no end.
///
/// # Errors
/// There is no such file, this user may not read it, or it is no regular file ([`io::ErrorKind::InvalidInput`]).
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK the open itself waits for the writer of a FIFO. On a regular file the flag does nothing.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    // The type of what was opened: a path may name something else by now.
    let kind = file.metadata()?.file_type();
    if kind.is_file() { Ok(file) } else { Err(not_regular(kind)) }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open_regular`], or the file is longer ([`io::ErrorKind::InvalidData`]).
pub fn read_regular(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let text = format!("it is longer than {most} bytes, which is more than it can hold");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(bytes)
}

fn not_regular(kind: FileType) -> io::Error {
    let found = match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "no file",
    };
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {found}, and only a regular file is read here"),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink(at("fifo"), at("link")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        for (name, word) in [("fifo", "FIFO"), ("link", "FIFO"), ("folder", "folder"), ("device", "device")] {
            let error = open_regular(&at(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
            assert!(error.to_string().contains(word), "{name}: {error}");
        }
        // The system itself opens no socket.
        assert!(open_regular(&at("socket")).is_err());
        assert_eq!(open_regular(&at("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_read_whole_or_refused_for_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, b"12345").unwrap();
        symlink(&path, &link).unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        assert_eq!(read_regular(&link, 5).unwrap(), b"12345");
        assert_eq!(read_regular(&path, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
