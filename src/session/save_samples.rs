//! Writes the samples of a profile that a query shows.

use std::io::Write;
use std::sync::Arc;

use crate::formats::{About, FormatError, Sink};
use crate::locks;
use crate::profile::{Names, Query, TimeRange, ViewBuilder};
use crate::session::shared::Shared;

/// Writes the samples that `query` shows by an unused sink, and returns their number. The query's range must not depend on the present. Samples may still arrive
/// meanwhile.
pub(super) fn save_samples(
    mut sink: Box<dyn Sink>,
    shared: &Shared,
    query: &Query,
    about: &About,
    out: &mut dyn Write,
) -> Result<u64, FormatError> {
    if let TimeRange::Between(from, to) = query.range {
        sink.within(from, to);
    }
    let mut filter: Option<(Arc<Names>, ViewBuilder)> = None;
    loop {
        let profile = locks::read(&shared.profile);
        let names = shared.names_of(&profile);
        let (_, filter) = match filter.take_if(|(known, _)| !Arc::ptr_eq(known, &names)) {
            Some(_) | None => filter.get_or_insert_with(|| (Arc::clone(&names), ViewBuilder::new(names.clone(), query.clone()))),
        };
        let more = sink.take_some(&profile, &names, &mut |sample| filter.shows(&profile, sample));
        drop(profile);
        sink.tell(about, &shared.processes);
        out.write_all(&sink.bytes())?;
        if !more {
            break;
        }
    }
    if sink.samples() == 0 {
        return Err(FormatError::NothingToSave);
    }
    sink.end()?;
    out.write_all(&sink.bytes())?;
    out.flush()?;
    Ok(sink.samples())
}
