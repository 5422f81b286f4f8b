//! Opens regular files only: whoever opens a pipe waits for somebody to write into it, and a device may have no end.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file to read it, without ever waiting.
///
/// # Errors
/// Why it cannot be opened; of a folder, a pipe, a socket or a device, that it is one.
pub fn open(path: &Path) -> io::Result<File> {
    check(&fs::metadata(path)?)?;
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    // By now something else may stand there.
    check(&file.metadata()?)?;
    Ok(file)
}

/// All bytes of a file.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file.
///
/// # Errors
/// As [`open`]; also where it is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn check(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    if found.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a folder",
        ));
    }
    let what = format!("it is {}, and only files are read", kind(found));
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(unix)]
fn kind(found: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match found.file_type() {
        found if found.is_fifo() => "a pipe",
        found if found.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn kind(_: &Metadata) -> &'static str {
    "a device"
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let made = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(made.unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        fs::write(at("file"), "text").unwrap();
        for (path, said) in [
            (at("pipe"), "it is a pipe"),
            (at("socket"), "it is a socket"),
            ("/dev/zero".into(), "it is a device"),
            (at(""), "it is a folder"),
        ] {
            let error = read_to_string(&path).unwrap_err().to_string();
            assert!(error.starts_with(said), "{}: {error}", path.display());
        }
        assert_eq!(read(&at("file")).unwrap(), b"text");
    }
}
