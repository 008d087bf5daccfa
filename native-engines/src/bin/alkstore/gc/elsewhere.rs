//! Where there are no signals to wait for: an interrupt ends the process, and what it had claimed lapses.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use crate::exit::Result;

#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    #[allow(clippy::unnecessary_wraps)] // elsewhere it can fail
    pub fn watch() -> Result<Self> {
        Ok(Self::default())
    }

    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    #[allow(clippy::unused_self)] // elsewhere it says which signal it was
    pub fn finish(&self) -> ExitCode {
        ExitCode::FAILURE
    }
}
