//! Children that die with this process, whatever ends it.
//!
//! The kernel's signal at a parent's death (`PR_SET_PDEATHSIG`, set by `setpriv`) is sent when the *thread* that
//! started the child ends. Tests are threads that come and go, so one thread that lives as long as the process
//! starts all children.

use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use anyhow::{Context, Result};

type Answer = std::io::Result<Child>;
type Order = (Command, Sender<Answer>);

/// A command for `program` that the kernel kills when this process ends.
pub(crate) fn mortal(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Starts a command from the thread that never ends.
pub(crate) fn start(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let text = format!("starting {command:?}");
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                // The receiver waits for it below; there is nobody else to tell.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, outcome) = channel();
    let sent = spawner.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer));
    sent.ok().context("the spawner is gone")?;
    outcome.recv().context("the spawner is gone")?.context(text)
}
