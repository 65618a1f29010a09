//! What is kept of a study, so that one that was interrupted goes on: the outcomes of finished jobs, a line each.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::StudyError;
use super::outcome::Outcome;
use super::plan::Job;

/// By site and job.
type Finished = BTreeMap<(usize, Job), Outcome>;

#[derive(Serialize, Deserialize)]
struct Line {
    site: usize,
    job: Job,
    outcome: Outcome,
}

/// The outcomes that there are, by site and job, and the file that they are kept in, if any.
#[derive(Debug)]
pub struct State {
    finished: Finished,
    file: Mutex<Option<(PathBuf, File)>>,
    resumed: usize,
}

impl State {
    /// Kept in memory only.
    #[must_use]
    pub const fn in_memory() -> Self {
        Self { finished: BTreeMap::new(), file: Mutex::new(None), resumed: 0 }
    }

    /// Kept in a file in this folder that is named by the digest of what is studied and how.
    ///
    /// # Errors
    /// The file cannot be used, or another study uses it.
    pub fn open(folder: &Path, digest: &str) -> Result<Self, StudyError> {
        let path = Self::path(folder, digest);
        let failed = |source| StudyError::File { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StudyError::InUse(path)),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let (finished, whole_bytes) = read(&mut file).map_err(failed)?;
        // What follows the last whole line was being written when the study was interrupted.
        file.set_len(whole_bytes).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let resumed = finished.len();
        Ok(Self { finished, file: Mutex::new(Some((path, file))), resumed })
    }

    /// The file.
    #[must_use]
    pub fn path(folder: &Path, digest: &str) -> PathBuf {
        folder.join(format!("redundancy-{digest}.state"))
    }

    /// Outcomes that an earlier run had left.
    #[must_use]
    pub const fn resumed(&self) -> usize {
        self.resumed
    }

    pub(super) fn outcome(&self, site: usize, job: Job) -> Option<&Outcome> {
        self.finished.get(&(site, job))
    }

    /// Writes outcomes to the file, so that they are there even if the machine fails.
    pub(super) fn keep(&self, site: usize, outcomes: &[(Job, Outcome)]) -> Result<(), StudyError> {
        let mut guard = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some((path, file)) = guard.as_mut() else { return Ok(()) };
        let mut lines = Vec::new();
        let mut write = || {
            for (job, outcome) in outcomes {
                serde_json::to_writer(&mut lines, &Line { site, job: *job, outcome: outcome.clone() })?;
                lines.push(b'\n');
            }
            file.write_all(&lines)?;
            file.sync_data()
        };
        write().map_err(|source: io::Error| StudyError::File { path: path.clone(), source })
    }

    pub(super) fn add(&mut self, site: usize, outcomes: Vec<(Job, Outcome)>) {
        self.finished.extend(outcomes.into_iter().map(|(job, outcome)| ((site, job), outcome)));
    }
}

/// Whole lines, and how many bytes they are.
fn read(file: &mut File) -> io::Result<(Finished, u64)> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let (mut finished, mut whole_bytes) = (Finished::new(), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Ok(Line { site, job, outcome }) = serde_json::from_slice::<Line>(line) else { break };
        if line.last() != Some(&b'\n') {
            break;
        }
        finished.insert((site, job), outcome);
        whole_bytes += line.len() as u64;
    }
    Ok((finished, whole_bytes))
}
