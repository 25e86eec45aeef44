//! pprof: the format of Go's and of many other profilers. A file is a gzip-compressed protocol buffer, `perftools.profiles.Profile`.
//!
//! ```text
//! Profile:  sample_type 1*  sample 2*  mapping 3*  location 4*  function 5*  string_table 6*  time_nanos 9  duration_nanos 10
//!           period_type 11  period 12  default_sample_type 14
//! Sample:   location_id 1* (innermost first)  value 2* (one for each sample_type)      ValueType: type 1  unit 2
//! Location: id 1  mapping_id 2  address 3  line 4* (innermost inlined function first)  Line: function_id 1  line 2
//! Function: id 1  name 2  filename 4  start_line 5                                     Mapping: id 1  filename 5
//! ```
//!
//! Texts are numbers of rows in `string_table`, whose first row is empty. Samples have no times. Source:
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::{open, recognizes};
pub(super) use write::write;
