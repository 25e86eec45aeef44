//! Finds the events that this machine refuses. A list of events can then say so before the reader chooses one.

use super::{COUNTERS, EventRequest, EventSpec, NamePattern, Probes, TRIED_EVENT, TRIED_FUNCTION, no_counter};
use crate::collector::error::CollectorError;

/// The events that cannot be attached on this machine, each with the reason in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Counters that do not work, by name.
    pub counters: Vec<(&'static str, String)>,
    /// Why functions of the kernel cannot be traced. `None` if they can.
    pub functions: Option<String>,
    /// Why tracepoints cannot be used. `None` if they can.
    pub tracepoints: Option<String>,
    /// Why waits cannot be seen. `None` if they can.
    pub waits: Option<String>,
}

impl Refused {
    /// Returns the reason for a counter, or `None` if it works.
    pub fn counter(&self, name: &str) -> Option<&str> {
        self.counters.iter().find(|(refused, _)| *refused == name).map(|(_, why)| why.as_str())
    }
}

impl Probes {
    /// Tries one event of each kind for a moment, and opens each counter. Takes up to 0.2 s if functions are refused.
    pub(in crate::collector) fn refused(&mut self, cpus: &[u32]) -> Refused {
        let counters = COUNTERS.iter().filter_map(|counter| {
            let opened = self.open_counter(*counter, *cpus.first()?);
            opened.err().map(|error| (counter.name, no_counter(*counter, &error)))
        });
        let counters = counters.collect();
        let functions = EventSpec::Kernel { mechanism: None, functions: NamePattern::Exact(TRIED_FUNCTION.to_owned()) };
        let (category, name) = TRIED_EVENT;
        let tracepoint = EventSpec::Tracepoint { category: category.to_owned(), name: name.to_owned() };
        let functions = self.why_refused(functions, cpus);
        let waits = self.why_refused(EventSpec::Waits, cpus);
        Refused { counters, functions, tracepoints: self.why_refused(tracepoint, cpus), waits }
    }

    fn why_refused(&mut self, spec: EventSpec, cpus: &[u32]) -> Option<String> {
        let request = EventRequest { name: String::new(), spec, places: Vec::new(), is_agreed: true };
        match self.attach(&request, cpus) {
            Ok(source) => {
                self.detach(source);
                None
            }
            Err(CollectorError::NotAttached { why, .. }) => Some(why),
            Err(CollectorError::TooManyEvents { .. }) => None,
            Err(other) => Some(other.to_string()),
        }
    }
}
