//! The two ways to fail, as exit codes.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// Wrong usage: the caller can put it right by asking differently. Everything else is a failure.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// An error that ends with 2.
pub(crate) fn usage(text: impl Into<String>) -> Usage {
    Usage(text.into())
}

/// 2 after wrong usage, 0 when whoever reads our output had enough (`xuid next -n 1000000 | head`), else 1.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Usage>() {
        ExitCode::from(2)
    } else if is_broken_pipe(error) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether standard output was closed by its reader.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        let io = cause.downcast_ref::<Stdout>();
        io.is_some_and(|Stdout(error)| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// Standard output could not be written. A type of its own, so that a connection that broke is not taken for it.
#[derive(Debug)]
pub(crate) struct Stdout(pub(crate) std::io::Error);

impl fmt::Display for Stdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to write to standard output: {}", self.0)
    }
}

impl Error for Stdout {}
