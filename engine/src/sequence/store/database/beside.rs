//! Tables that share `xuid_store` with the one that is used: those of its schema.

use std::collections::BTreeMap;

use super::table::{FoundTable, Shape, Table};
use crate::sequence::store::Identity;

/// A table, and the others of its schema that a server could use, each with its schema's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The one that was asked for.
    pub table: Table,
    /// What else a fence of it opens.
    pub others: Vec<Table>,
    /// Of the host where they were looked at.
    pub identity: String,
}

/// The columns by which a table is known, in quotation marks.
pub(super) fn known_columns() -> String {
    let all = Shape::ALL.into_iter().flat_map(|shape| shape.columns().needed());
    all.map(|column| format!("'{column}'")).collect::<Vec<_>>().join(", ")
}

/// Looks through the tables of a schema of this host, and their columns: those that are known.
pub(super) fn beside(
    table: &FoundTable,
    identity: Identity,
    columns: impl Iterator<Item = (String, String)>,
) -> Beside {
    let (schema, own) = &table.place;
    let mut tables = BTreeMap::<String, Vec<String>>::new();
    for (table, column) in columns {
        tables.entry(table).or_default().push(column);
    }
    let named = |shape, name: &str| Table::named(shape, format!("{schema}.{name}"));
    let others = tables.iter().filter(|(name, _)| *name != own).filter_map(|(name, columns)| {
        let has = |column: &str| columns.iter().any(|found| found == column);
        let shape = Shape::ALL.into_iter().find(|shape| shape.columns().needed().all(has))?;
        Some(named(shape, name))
    });
    Beside { table: named(table.shape, own), others: others.collect(), identity: identity.current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_known_by_its_columns() {
        let place = ("ids".to_owned(), "xuid_sequence".to_owned());
        let table = FoundTable { shape: Shape::Xuid, place, table: String::new(), columns: BTreeMap::new() };
        let columns = |name: &'static str, columns: &'static str| {
            columns.split(' ').map(move |column| (name.to_owned(), column.to_owned()))
        };
        let all = columns("apart", "name next step increment remainder last strict")
            .chain(columns("leaf_alloc", "biz_tag max_id step"))
            .chain(columns("tiny_id_info", "biz_type max_id step delta remainder version"))
            .chain(columns("users", "name last"))
            .chain(columns("xuid_sequence", "name next step increment remainder last strict"));
        let identity = Identity { current: "host 0".into(), recorded: None, fenced: None };
        let found = beside(&table, identity, all);
        assert_eq!(found.table.to_string(), "xuid:ids.xuid_sequence");
        let others: Vec<String> = found.others.iter().map(ToString::to_string).collect();
        assert_eq!(others, ["xuid:ids.apart", "leaf:ids.leaf_alloc", "tinyid:ids.tiny_id_info"]);
        for column in ["'name'", "'biz_tag'", "'delta'"] {
            assert!(known_columns().contains(column));
        }
    }
}
