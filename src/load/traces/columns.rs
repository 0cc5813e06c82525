//! CSV rows whose columns are found by their names in the header.
//!
//! The traces have plain fields: no quoted commas or newlines, so a row is a line. Quotes round a
//! field are taken off.

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|field| {
        let field = field.trim();
        let inner = field
            .strip_prefix('"')
            .and_then(|field| field.strip_suffix('"'));
        inner.unwrap_or(field)
    })
}

/// The names of a file's columns.
pub(super) struct Header {
    names: Vec<String>,
}

impl Header {
    pub(super) fn of(line: &str) -> Header {
        Header {
            names: fields(line).map(str::to_ascii_lowercase).collect(),
        }
    }

    /// Where the column of this name is.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let name = name.to_ascii_lowercase();
        self.names.iter().position(|found| *found == name)
    }

    /// How many columns there are.
    pub(super) fn count(&self) -> usize {
        self.names.len()
    }
}

/// The fields of a row, of which there must be as many as columns.
pub(super) fn split(line: &str, columns: usize) -> Result<Vec<&str>, String> {
    let found: Vec<&str> = fields(line).collect();
    if found.len() != columns {
        return Err(format!(
            "{} fields, where the file's header has {columns}",
            found.len()
        ));
    }
    Ok(found)
}
