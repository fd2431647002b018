//! Names, places, frames and puts without files.
