//! Writes the samples of a profile as a recording, when the screen asks for it.

use std::io::Write;
use std::sync::Arc;

use crate::formats::recording::Recorder;
use crate::formats::{About, FormatError};
use crate::locks;
use crate::profile::{Names, Query, ViewBuilder};
use crate::session::shared::Shared;

/// Writes the samples that `query` shows, and returns their number. Its range must not depend on the present. Samples may still arrive
/// meanwhile.
pub(super) fn save_samples(shared: &Shared, query: &Query, about: &About, out: &mut dyn Write) -> Result<u64, FormatError> {
    let mut recorder = Recorder::new();
    let mut filter: Option<(Arc<Names>, ViewBuilder)> = None;
    loop {
        let profile = locks::read(&shared.profile);
        let names = shared.names_of(&profile);
        let (_, filter) = match filter.take_if(|(known, _)| !Arc::ptr_eq(known, &names)) {
            Some(_) | None => filter.get_or_insert_with(|| (Arc::clone(&names), ViewBuilder::new(names.clone(), query.clone()))),
        };
        let more = recorder.take_some(&profile, &names, |sample| filter.shows(&profile, sample));
        drop(profile);
        recorder.tell(about, &shared.processes);
        out.write_all(&recorder.bytes())?;
        if !more {
            break;
        }
    }
    if recorder.samples() == 0 {
        return Err(FormatError::NothingToSave);
    }
    recorder.end();
    out.write_all(&recorder.bytes())?;
    out.flush()?;
    Ok(recorder.samples())
}
