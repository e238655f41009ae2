//! Sections.

use std::collections::BTreeMap;

use banksman_core::backlog::Section;
use banksman_core::{SectionId, Status, Title};
use serde::Serialize;

use super::Time;

#[derive(Debug, Serialize)]
pub(crate) struct SectionView<'a> {
    id: &'a SectionId,
    name: &'a Title,
    exclusive: bool,
}

impl<'a> From<&'a Section> for SectionView<'a> {
    fn from(section: &'a Section) -> SectionView<'a> {
        SectionView { id: &section.id, name: &section.name, exclusive: section.exclusive }
    }
}

/// A section with its counts, and the runner that holds it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SectionPage<'a> {
    #[serde(flatten)]
    pub(crate) section: SectionView<'a>,
    pub(crate) tasks: u64,
    pub(crate) by_status: &'a BTreeMap<Status, u64>,
    pub(crate) holder: Option<&'a str>,
    pub(crate) since: Option<Time>,
    pub(crate) holder_state: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Deleted<'a> {
    pub(crate) id: &'a SectionId,
    pub(crate) name: &'a Title,
    pub(crate) forced: bool,
}
