//! The names of variables and attributes (section 2).

/// The number of processes of the program, by which a directory is known.
pub const PROCESSES: &str = "/__pio__/info/nproc";

const PREFIX: &str = "/__pio__/";
const DIMENSION: &str = "dim/";
const DATA: &str = "var/";
const MAP: &str = "decomp/";
const GLOBAL: &str = "global/";
const DEFINITION: &str = "def/";

/// What a name stands for. The texts are the names of netCDF, or the number of a decomposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// The number of processes.
    Processes,
    /// Whether maps are in the file.
    HasMaps,
    /// The ranks of the groups.
    Groups,
    /// The length of a dimension.
    Dimension(&'a str),
    /// The elements of a variable.
    Data(&'a str),
    /// The places of a decomposition.
    Map(&'a str),
    /// A list about the frames of a variable, or about the map of a decomposition.
    Track(Track, &'a str),
    /// Anything else.
    Other,
}

/// A list about the frames of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Track {
    /// The decomposition of each frame.
    Map,
    /// The number of each frame.
    Number,
    /// The fill values of the frames that have one.
    Fill,
    /// For each group and frame, the number of members with a block.
    Writers,
    /// For each group, the number of members with a block of the map.
    MapWriters,
}

impl Track {
    const ALL: [Track; 5] = [
        Track::Map,
        Track::Number,
        Track::Fill,
        Track::Writers,
        Track::MapWriters,
    ];

    fn prefix(self) -> &'static str {
        match self {
            Track::Map => "track/decomp_id/",
            Track::Number => "track/frame_id/",
            Track::Fill => "track/fillval_id/",
            Track::Writers => "track/num_data_block_writers/",
            Track::MapWriters => "track/num_decomp_block_writers/",
        }
    }
}

/// What the name of a variable of ADIOS2 stands for.
pub fn name_of(variable: &str) -> Named<'_> {
    let Some(own) = variable.strip_prefix(PREFIX) else {
        return Named::Other;
    };
    match own {
        "info/nproc" => return Named::Processes,
        "info/decomp_stored" => return Named::HasMaps,
        "info/block_list" => return Named::Groups,
        _ => {}
    }
    if let Some(name) = own.strip_prefix(DIMENSION) {
        return Named::Dimension(name);
    }
    if let Some(name) = own.strip_prefix(DATA) {
        return Named::Data(name);
    }
    if let Some(id) = own.strip_prefix(MAP) {
        return Named::Map(id);
    }
    let track = Track::ALL.into_iter().find_map(|track| {
        let name = own.strip_prefix(track.prefix())?;
        Some(Named::Track(track, name))
    });
    track.unwrap_or(Named::Other)
}

/// The name of the variable with the elements of a netCDF variable.
pub fn data_of(name: &str) -> String {
    format!("{PREFIX}{DATA}{name}")
}

/// The name of the variable with the places of a decomposition.
pub fn map_of(id: i64) -> String {
    format!("{PREFIX}{MAP}{id}")
}

/// The name of a list about a variable.
pub fn track_of(track: Track, name: &str) -> String {
    format!("{PREFIX}{}{name}", track.prefix())
}

/// The name of the list of the members with a block of a map.
pub fn map_writers_of(id: i64) -> String {
    track_of(Track::MapWriters, &id.to_string())
}

/// What the name of an attribute of ADIOS2 stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedAttribute<'a> {
    /// A global attribute.
    Global(&'a str),
    /// An attribute of a variable, by the names of both.
    OfVariable(&'a str, &'a str),
    /// A part of the definition of a variable, by the name of the variable.
    Definition(Part, &'a str),
    /// The shape of a decomposition, by its ID.
    Shape(&'a str),
    /// Anything else.
    Other,
}

/// A part of the definition of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Type,
    Rank,
    Dimensions,
    Way,
    MemoryType,
    /// The decomposition of the first frame, which `track` tells for each frame.
    Decomposition,
}

pub(super) fn name_of_attribute(attribute: &str) -> NamedAttribute<'_> {
    let Some(own) = attribute.strip_prefix(PREFIX) else {
        return NamedAttribute::Other;
    };
    if let Some(name) = own.strip_prefix(GLOBAL) {
        return NamedAttribute::Global(name);
    }
    if let Some(own) = own.strip_prefix(DATA) {
        // A name of netCDF has no slash.
        let Some((variable, name)) = own.split_once('/') else {
            return NamedAttribute::Other;
        };
        let part = name.strip_prefix(DEFINITION).and_then(|part| match part {
            "nctype" => Some(Part::Type),
            "ndims" => Some(Part::Rank),
            "dims" => Some(Part::Dimensions),
            "ncop" => Some(Part::Way),
            "adiostype" => Some(Part::MemoryType),
            "decomp" => Some(Part::Decomposition),
            _ => None,
        });
        return match part {
            Some(part) => NamedAttribute::Definition(part, variable),
            None => NamedAttribute::OfVariable(variable, name),
        };
    }
    match own.strip_prefix(MAP).and_then(|own| own.split_once('/')) {
        Some((id, "dimlen")) => NamedAttribute::Shape(id),
        _ => NamedAttribute::Other,
    }
}
