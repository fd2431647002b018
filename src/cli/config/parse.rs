//! Parses the text of a configuration file. Collects all errors, not only the first one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, IgnoredAny};
use toml::Spanned;
use toml::de::{DeTable, ValueDeserializer};

use super::{Config, ConfigErrors, Section, Setting};
use crate::cli::mount::options::{self, MountOption, MountOptions, Value};
use crate::cli::suggest::did_you_mean;
use h5logfs_catalog::index_dir::IndexDir;

const DEFAULTS: &str = "defaults";
const MOUNT: &str = "mount";
const SOURCE: &str = "source";
const POINT: &str = "point";

const ABSOLUTE: &str = "must be an absolute path";

/// The keys of a section, with their places for errors.
type Keys = BTreeMap<Spanned<String>, Given>;

/// The value of a key: of a type that options have, or any other.
#[derive(serde::Deserialize)]
#[serde(untagged, remote = "Self")]
enum Given {
    Switch(bool),
    Number(i64),
    Large(u64),
    Text(String),
    List(Vec<String>),
    Other(IgnoredAny),
    /// A number for which serde has no type.
    #[serde(skip)]
    TooLarge,
}

/// Never fails: an error of serde would end the whole section and hide the errors after it.
impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `remote` makes this an inherent function of `Given`.
        Ok(Given::deserialize(deserializer).unwrap_or(Given::TooLarge))
    }
}

impl Config {
    /// Parses a file. Error messages name `path`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let mut parser = Parser {
            path,
            text,
            errors: Vec::new(),
        };
        let config = parser.config();
        if parser.errors.is_empty() {
            return Ok(config);
        }
        parser.errors.sort();
        let errors = parser.errors.into_iter();
        Err(ConfigErrors(errors.map(|(_, error)| error).collect()))
    }
}

struct Parser<'a> {
    path: &'a Path,
    text: &'a str,
    /// Errors by line.
    errors: Vec<(usize, String)>,
}

impl Parser<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|b| **b == b'\n').count()
    }

    fn error(&mut self, line: usize, reason: impl std::fmt::Display) {
        let error = format!("{}:{line}: {reason}", self.path.display());
        self.errors.push((line, error));
    }

    fn config(&mut self) -> Config {
        let (mut table, errors) = DeTable::parse_recoverable(self.text);
        for e in errors {
            let line = self.line(e.span().map_or(0, |span| span.start));
            self.error(line, e.message());
        }
        let table = table.get_mut();
        let defaults: Option<Spanned<Keys>> =
            self.take(table, DEFAULTS, format_args!("[{DEFAULTS}]"));
        let mounts: Option<Vec<Spanned<Keys>>> =
            self.take(table, MOUNT, format_args!("[[{MOUNT}]]"));
        for key in table.keys() {
            let line = self.line(key.span().start);
            let expected = format_args!("expected [{DEFAULTS}] or [[{MOUNT}]]");
            self.error(line, format_args!("{key}: unknown key; {expected}"));
        }
        let mounts = mounts.into_iter().flatten();
        let config = Config {
            path: self.path.to_owned(),
            defaults: defaults.map_or_else(Vec::new, |keys| self.defaults(keys)),
            mounts: mounts.map(|keys| self.section(keys)).collect(),
        };
        self.check_sections(&config);
        config
    }

    /// Takes the value of `key` from the file's table.
    fn take<'de, T: Deserialize<'de>>(
        &mut self,
        table: &mut DeTable<'de>,
        key: &str,
        form: impl std::fmt::Display,
    ) -> Option<T> {
        let value = table.remove(key)?;
        let line = self.line(value.span().start);
        let value = T::deserialize(ValueDeserializer::from(value));
        if value.is_err() {
            self.error(line, format_args!("{key}: must be {form}"));
        }
        value.ok()
    }

    fn defaults(&mut self, keys: Spanned<Keys>) -> Vec<Setting> {
        let section = self.section(keys);
        if section.source.is_some() || section.point.is_some() {
            let reason = "`source` and `point` belong in a [[mount]]";
            self.error(section.line, format_args!("[{DEFAULTS}]: {reason}"));
        }
        section.settings
    }

    fn section(&mut self, keys: Spanned<Keys>) -> Section {
        let mut section = Section {
            line: self.line(keys.span().start),
            ..Section::default()
        };
        let mut keys: Vec<_> = keys.into_inner().into_iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in keys {
            let line = self.line(key.span().start);
            match key.get_ref().as_str() {
                name @ SOURCE => section.source = self.absolute(line, name, value),
                name @ POINT => section.point = self.absolute(line, name, value),
                name => section.settings.extend(self.settings(line, name, value)),
            }
        }
        section
    }

    /// Refuses relative paths, which would depend on the daemon's directory.
    fn absolute(&mut self, line: usize, name: &str, value: Given) -> Option<PathBuf> {
        match value {
            Given::Text(path) if Path::new(&path).is_absolute() => Some(path.into()),
            _ => {
                self.error(line, format_args!("{name}: {ABSOLUTE}"));
                None
            }
        }
    }

    /// The settings of one key. A list makes several.
    fn settings(&mut self, line: usize, name: &str, value: Given) -> Vec<Setting> {
        let options = options_of(name, value).unwrap_or_else(|reason| {
            self.error(line, format_args!("{name}: {reason}"));
            Vec::new()
        });
        for option in &options {
            // Checks each option alone. `check_together` finds contradictions.
            let mut alone = MountOptions::default();
            match alone.set(option) {
                Err(e) => self.error(line, format_args!("{name}: {e}")),
                Ok(()) if has_relative_path(&alone) => {
                    self.error(line, format_args!("{name}: {ABSOLUTE}"));
                }
                Ok(()) => {}
            }
        }
        let setting = |option| Setting { line, option };
        options.into_iter().map(setting).collect()
    }

    /// Checks sections as a whole, and against each other.
    fn check_sections(&mut self, config: &Config) {
        if !self.errors.is_empty() {
            return;
        }
        for (number, section) in config.mounts.iter().enumerate() {
            if section.source.is_none() && section.point.is_none() {
                let reason = "it has neither `source` nor `point`, so it applies to no mount";
                self.error(section.line, format_args!("[[{MOUNT}]]: {reason}"));
            }
            let before = config.mounts.iter().take(number);
            let same = |other: &&Section| {
                (&other.source, &other.point) == (&section.source, &section.point)
            };
            if let Some(other) = before.into_iter().find(same) {
                let reason = format!(
                    "it applies to the same mounts as the section in line {}",
                    other.line
                );
                self.error(section.line, format_args!("[[{MOUNT}]]: {reason}"));
            }
            self.check_together(config, section);
        }
        if config.mounts.is_empty() {
            self.check_together(config, &Section::default());
        }
    }

    fn check_together(&mut self, config: &Config, section: &Section) {
        let settings = config.defaults.iter().chain(&section.settings);
        if let Err(e) = MountOptions::parse(settings.map(|s| s.option.as_os_str())) {
            self.error(section.line.max(1), e);
        }
    }
}

fn has_relative_path(options: &MountOptions) -> bool {
    let index_dir = match &options.read.index_dir {
        IndexDir::At(path) => Some(path),
        IndexDir::Usual | IndexDir::None => None,
    };
    let mut paths = index_dir
        .into_iter()
        .chain(&options.log_file)
        .chain(&options.read.settings.log_dirs);
    paths.any(|path| path.is_relative())
}

/// The mount options for `name = value`.
fn options_of(name: &str, value: Given) -> Result<Vec<OsString>, String> {
    let Some(option) = MountOption::named(name) else {
        let keys = options::all().map(|option| option.name);
        let keys = keys.chain([SOURCE, POINT]);
        return Err(format!("unknown key{}", did_you_mean(name, keys)));
    };
    let given = |value: &dyn std::fmt::Display| OsString::from(format!("{name}={value}"));
    match (option.value, value) {
        (_, Given::TooLarge) => Err("the number is too large".into()),
        (Value::Flag(_), Given::Switch(true)) => Ok(vec![name.into()]),
        (Value::Flag(_), Given::Switch(false)) => Ok(vec![format!("no{name}").into()]),
        (Value::Flag(_), _) => Err("must be true or false".into()),
        (Value::Given { .. }, Given::Text(text)) => Ok(vec![given(&text)]),
        (Value::Given { .. }, Given::Number(number)) => Ok(vec![given(&number)]),
        (Value::Given { .. }, Given::Large(number)) => Ok(vec![given(&number)]),
        (Value::Given { adds_up: true, .. }, Given::List(list)) => {
            Ok(list.iter().map(|item| given(item)).collect())
        }
        (Value::Given { adds_up: true, .. }, _) => Err("must be a list of strings".into()),
        (Value::Given { form, .. }, _) => Err(format!("must be a string or a number: {form}")),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use h5logfs_log::scan::LAYOUT_OPTIONS;

    /// The name of an option that may be repeated.
    fn adding_up() -> &'static str {
        let mut options = LAYOUT_OPTIONS.iter();
        options.find(|option| option.adds_up).unwrap().name
    }

    fn faults(text: &str) -> Vec<String> {
        Config::parse(Path::new("f"), text).unwrap_err().0
    }

    #[test]
    fn values_are_those_of_the_options() {
        let list = adding_up();
        let text = format!(
            r#"
            [defaults]
            allow_other = true
            auto_unmount = false
            cache_size = 33_554_432
            index_memory = "1G"
            log_file = "/var/log/a,b"
            {list} = ["/a", "/b:/c"]
        "#
        );
        let config = Config::parse(Path::new("f"), &text).unwrap();
        let settings: Vec<(usize, &str)> = config
            .defaults
            .iter()
            .map(|s| (s.line, s.option.to_str().unwrap()))
            .collect();
        let expected = [
            (3, "allow_other"),
            (4, "noauto_unmount"),
            (5, "cache_size=33554432"),
            (6, "index_memory=1G"),
            (7, "log_file=/var/log/a,b"),
        ];
        let (last, first) = (settings.len() - 2, &settings[..settings.len() - 2]);
        assert_eq!(first, expected);
        let lists = [format!("{list}=/a"), format!("{list}=/b:/c")];
        assert_eq!(settings[last..], [(8, &*lists[0]), (8, &*lists[1])]);
        let options: Vec<&OsStr> = config
            .defaults
            .iter()
            .map(|s| s.option.as_os_str())
            .collect();
        let options = MountOptions::parse(options).unwrap();
        assert!(options.allow_other && !options.auto_unmount);
        assert_eq!(options.read.memory.cache_size, 32 << 20);
        assert_eq!(options.log_file, Some("/var/log/a,b".into()));
        assert_eq!(options.read.settings.log_dirs.len(), 3);
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        let config = Config::parse(Path::new("f"), "# nothing\n").unwrap();
        assert!(config.defaults.is_empty() && config.mounts.is_empty());
    }

    #[test]
    fn each_fault_is_told_with_its_line_and_key() {
        let list = adding_up();
        let text = format!(
            r#"
[defaults]
cache_sise = "2G"
threads = 0
allow_other = "yes"
index_memory = 99_999_999_999_999_999_999

[[mount]]
source = "data"
ro = true
index_dir = ["/a"]
{list} = [1]
chunk = 1.5
log_file = "relative.log"

[mounts]
"#
        );
        let found = faults(&text);
        let list = format!("{list}: must be a list of strings");
        let expected = [
            (3, "cache_sise: unknown key; did you mean cache_size?"),
            (4, "threads: threads=0: not a number from 1 to"),
            (5, "allow_other: must be true or false"),
            (6, "index_memory: the number is too large"),
            (9, "source: must be an absolute path"),
            (10, "ro: unknown key"),
            (11, "index_dir: must be a string"),
            (12, &list),
            (13, "chunk: must be a string"),
            (14, "log_file: must be an absolute path"),
            (16, "mounts: unknown key"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (fault, (line, words)) in found.iter().zip(expected) {
            let start = format!("f:{line}: {words}");
            assert!(fault.starts_with(&start), "{fault}, not {start}");
        }
    }

    #[test]
    fn text_that_is_no_toml_is_told_with_its_line() {
        for (text, line) in [
            ("[defaults]\nthreads = \n", 2),
            ("[defaults]\nthreads = 1\nthreads = 2\n", 3),
            ("a = 1\n[defaults\n", 2),
        ] {
            let found = faults(text);
            let start = format!("f:{line}: ");
            assert!(found.iter().any(|f| f.starts_with(&start)), "{found:?}");
        }
    }

    #[test]
    fn sections_as_a_whole_can_be_wrong() {
        let nowhere = faults("[[mount]]\nthreads = 1\n");
        assert!(nowhere[0].starts_with("f:1: [[mount]]: it has neither"));
        let twice = faults("[[mount]]\nsource = \"/a\"\n[[mount]]\nsource = \"/a\"\n");
        assert!(
            twice[0]
                .contains("f:3: [[mount]]: it applies to the same mounts as the section in line 1")
        );
        let together = faults(
            "[defaults]\nchunk = \"64M\"\n[[mount]]\nsource = \"/a\"\ncache_size = \"64M\"\n",
        );
        assert!(together[0].starts_with("f:3: chunk="), "{together:?}");
        let alone = faults("[defaults]\nchunk = \"1G\"\n");
        assert!(alone[0].starts_with("f:1: chunk="), "{alone:?}");
        let misplaced = faults("[defaults]\nsource = \"/a\"\n");
        assert!(misplaced[0].contains("[[mount]]"), "{misplaced:?}");
        let single = faults("[mount]\nsource = \"/a\"\n");
        assert!(single[0].contains("must be [[mount]]"), "{single:?}");
        let both = faults("defaults = 1\nmount = [2]\n");
        let expected = [
            "f:1: defaults: must be [defaults]",
            "f:2: mount: must be [[mount]]",
        ];
        assert_eq!(both, expected);
    }
}
