//! What the project itself names beside what it requires: its extras, and the `# /// script` blocks of its programs.

use super::super::requirement::{self, Requirement};
use super::super::{ImportFormat, conda, inline_metadata, is_for_developers};
use super::FolderSurvey;
use super::programs::ModuleNeed;
use crate::project_files::requirements::RequirementsScan;
use crate::project_files::static_project::StaticProject;

/// Programs whose blocks are read.
const MAX_BLOCKS: usize = 100;
/// Requirements that are taken from one place.
const MAX_REQUIREMENTS: usize = 300;
/// Programs that are started where nothing else is said.
const COMMANDS: [&str; 2] = ["train.py", "main.py"];

impl FolderSurvey<'_> {
    /// Requirements for what the programs import, in the author's versions.
    pub(super) fn read_own_wishes(&mut self, needs: &[ModuleNeed]) {
        let mut files: Vec<&str> = needs.iter().map(|need| need.file.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        for file in files.into_iter().take(MAX_BLOCKS) {
            let wishes = self.block_of(file).into_iter();
            let wishes: Vec<_> = wishes.map(|one| (file.to_owned(), one)).collect();
            self.wishes.extend(wishes);
        }
        self.read_other_files();
        let beside = |path: &str| self.folder.read_text(path);
        let project = StaticProject::read(self.folder.name(), &beside);
        let optional = project
            .map(|project| project.metadata.optional)
            .unwrap_or_default();
        let files = ["pyproject.toml", "setup.py"].into_iter();
        let mut files = files.filter(|file| self.folder.read_text(file).is_some());
        let file = files.next().unwrap_or("setup.cfg");
        for (extra, texts) in optional
            .iter()
            .filter(|(extra, _)| !is_for_developers(extra))
        {
            let parsed = parse_all(texts.iter().map(String::as_str));
            let place = format!("{file} extra {extra}");
            let wishes = parsed.into_iter().map(|one| (place.clone(), one));
            self.wishes.extend(wishes);
        }
    }

    /// What files of packages ask for that were not taken.
    fn read_other_files(&mut self) {
        let beside = |path: &str| self.folder.read_text(path);
        let entries = self.folder.list("");
        let names = entries.iter().filter(|entry| !entry.is_dir);
        let others =
            names.filter(|entry| entry.name != self.source && !is_for_developers(&entry.name));
        let mut wishes = Vec::new();
        for (name, format) in others.filter_map(|entry| {
            let format = ImportFormat::from_file_name(&entry.name)?;
            Some((entry.name.as_str(), format))
        }) {
            let text = || self.folder.read_text(name);
            match format {
                ImportFormat::Requirements => {
                    let scan = text().map(|text| RequirementsScan::scan_file(name, &text, &beside));
                    let found = scan.into_iter().flat_map(|scan| scan.requirements);
                    let found = found.take(MAX_REQUIREMENTS);
                    wishes.extend(found.map(|(line, one)| {
                        let place = line.map_or(name.to_owned(), |line| format!("{name}:{line}"));
                        (place, one)
                    }));
                }
                ImportFormat::Conda => {
                    let imported = text().and_then(|text| conda::convert(&text, &beside).ok());
                    let texts = imported.map(|imported| imported.spec.python.packages);
                    let texts = texts.iter().flatten().map(String::as_str);
                    let found = parse_all(texts).into_iter();
                    wishes.extend(found.map(|one| (name.to_owned(), one)));
                }
                _ => {}
            }
        }
        self.wishes.extend(wishes);
    }

    /// What the block of the program that is started asks for.
    pub(super) fn add_block_of_command(&mut self) {
        let list = self.folder.list("");
        let is_there = |name: &&str| list.iter().any(|entry| entry.name == *name);
        if let Some(file) = COMMANDS.into_iter().find(is_there) {
            self.add_block(file);
        }
    }

    /// Adds what a program's block asks for; gives whether it has one that asks for something.
    pub(super) fn add_block(&mut self, file: &str) -> bool {
        let block = self.block_of(file);
        for one in &block {
            self.add_package(one, file.to_owned());
        }
        !block.is_empty()
    }

    fn block_of(&self, file: &str) -> Vec<Requirement> {
        let text = self.folder.read_text(file).unwrap_or_default();
        if !text.contains("# /// script") {
            return Vec::new();
        }
        let table = inline_metadata::read_inline_metadata(&text).ok().flatten();
        let list = table.and_then(|table| table.get("dependencies")?.as_array().cloned());
        parse_all(list.iter().flatten().filter_map(toml::Value::as_str))
    }
}

fn parse_all<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<Requirement> {
    let parsed = texts.filter_map(|text| requirement::parse(text).ok());
    parsed.take(MAX_REQUIREMENTS).collect()
}
