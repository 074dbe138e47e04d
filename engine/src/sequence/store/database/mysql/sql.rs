//! The statements, for the columns of a table that was looked at. Names and other texts are written as hexadecimal
//! literals, so that no setting of the session changes what they mean.

use std::fmt::Write as _;

use super::super::beside::known_columns;
use super::super::table::{FoundTable, MOST_TINY_TOKENS, Shape, floor_of};
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Alteration, Ask, HIGHEST, MOST_STEP, NewLast, NewSequence};

pub(super) const BEGIN: &str = "START TRANSACTION READ WRITE";

/// Whether the statement before made a row.
pub(super) const NOTE_MADE: &str = "SET @xuid_made = ROW_COUNT()";

/// In the next transaction a row that is looked for, to be locked, and is not there can't be made by another one.
pub(super) const LOCKS_GAPS: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";

/// The statements of a connection.
pub(super) struct Statements {
    /// What the server calls itself, as an expression.
    identity_expression: String,
    pub(super) identity: String,
    /// `schema`.`xuid_store`
    pub(super) store_name: String,
    is_store_table_there: bool,
    table: String,
    shape: Shape,
    columns: Expressions,
}

/// `` `part` ``
pub(super) fn quoted(part: &str) -> String {
    format!("`{}`", part.replace('`', "``"))
}

/// A text literal in UTF-8.
pub(super) fn literal(text: &str) -> String {
    let mut literal = String::from("_utf8mb4 x'");
    for byte in text.bytes() {
        // Writing to a string does not fail.
        let _ = write!(literal, "{byte:02x}");
    }
    literal + "'"
}

/// One row if there is that table in a schema, which is an expression, and it may be read.
pub(super) fn find_table(of_schema: &str, name: &str) -> String {
    format!(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = {of_schema} AND table_name = {}",
        literal(name)
    )
}

/// Tables of a schema and their columns, as far as they are known.
pub(super) fn columns_of(schema: &str) -> String {
    // Said of both tables: to make either one for all schemas takes long.
    let schema = literal(schema);
    format!(
        "SELECT c.table_name AS c0, lower(c.column_name) AS c1 FROM information_schema.columns c \
         JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name \
         WHERE t.table_type = 'BASE TABLE' AND t.table_schema = {schema} AND c.table_schema = {schema} \
           AND lower(c.column_name) IN ({})",
        known_columns()
    )
}

/// What makes a store table.
pub(super) fn make_store(store_name: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {store_name} (
           one       tinyint PRIMARY KEY CHECK (one = 1),
           identity  varbinary(128) NOT NULL,
           fenced_at timestamp(3) NULL) ENGINE=InnoDB"
    )
}

/// What makes a table of shape `xuid`.
pub(super) fn make_sequences(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (
           name        varbinary(128) NOT NULL PRIMARY KEY,
           next        bigint NOT NULL CHECK (next >= 0),
           last        bigint NOT NULL DEFAULT {HIGHEST},
           step        bigint NOT NULL DEFAULT 1000 CHECK (step >= 1),
           increment   int NOT NULL DEFAULT 1 CHECK (increment >= 1),
           remainder   int NOT NULL DEFAULT 0,
           strict      tinyint(1) NOT NULL DEFAULT 0,
           description varchar(256) CHARACTER SET utf8mb4,
           updated_at  timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
           CHECK (remainder >= 0 AND remainder < increment)) ENGINE=InnoDB"
    )
}

/// Each column of a row, quoted, or what stands for one that the shape does not have.
struct Expressions {
    name: String,
    mark: String,
    step: String,
    increment: String,
    remainder: String,
    last: String,
    strict: String,
    description: String,
    /// The highest value of the mark's column.
    cap: String,
    /// What else a grant changes, each behind a comma.
    touched: &'static str,
}

impl Expressions {
    fn of(table: &FoundTable) -> Self {
        let columns = table.shape.columns();
        let or = |column: Option<&str>, otherwise: &str| column.map_or(otherwise.to_owned(), quoted);
        let touched = match table.shape {
            Shape::Xuid => "",
            // A timestamp is the database's own, by ON UPDATE.
            Shape::Leaf if !table.has_integer("update_time") => "",
            Shape::Leaf => ", `update_time` = UNIX_TIMESTAMP()",
            Shape::TinyId if table.has("update_time") => ", `version` = `version` + 1, `update_time` = now()",
            Shape::TinyId => ", `version` = `version` + 1",
        };
        Self {
            name: quoted(columns.name),
            mark: quoted(columns.mark),
            step: quoted(columns.step),
            increment: or(columns.increment, "1"),
            remainder: or(columns.remainder, "0"),
            last: or(columns.last, &HIGHEST.to_string()),
            strict: or(columns.strict, "0"),
            description: if table.has("description") { "`description`" } else { "NULL" }.into(),
            // An exclusive mark ends one above the last number, and a bigint at the highest.
            cap: columns.last.map_or(HIGHEST.to_string(), |last| {
                format!("(LEAST({}, {}) + 1)", quoted(last), HIGHEST - 1)
            }),
            touched,
        }
    }

    /// Whether a row has this very name. The first comparison finds it by the key; the second compares bytes, whatever
    /// the column's collation takes for equal.
    fn is(&self, name: &str) -> String {
        let (column, literal) = (&self.name, literal(name));
        format!("{column} = {literal} AND {bytes} = CAST({literal} AS BINARY)", bytes = self.bytes())
    }

    /// The name's bytes in UTF-8.
    fn bytes(&self) -> String {
        format!("CAST(CONVERT({} USING utf8mb4) AS BINARY)", self.name)
    }

    /// A row's columns in the order of `FoundRow`.
    fn list(&self) -> String {
        let Self { mark, step, increment, remainder, last, strict, description, .. } = self;
        format!("{}, {mark}, {step}, {increment}, {remainder}, {last}, {strict}, {description}", self.bytes())
    }
}

impl Statements {
    pub(super) fn new(table: &FoundTable, store_name: String, identity_expression: String) -> Self {
        let mut sql = Self {
            identity_expression,
            identity: String::new(),
            store_name,
            is_store_table_there: false,
            table: table.table.clone(),
            shape: table.shape,
            columns: Expressions::of(table),
        };
        sql.has_store_table(false);
        sql
    }

    /// The tokens of a tinyid deployment whose table is in the same schema.
    pub(super) fn tiny_tokens(&self) -> String {
        let schema = self.store_name.trim_end_matches("`xuid_store`");
        format!("SELECT `token`, `biz_type` FROM {schema}`tiny_id_token` LIMIT {MOST_TINY_TOKENS}")
    }

    pub(super) fn is_store_table_there(&self) -> bool {
        self.is_store_table_there
    }

    /// Reads the written identity with each transaction, or not.
    pub(super) fn has_store_table(&mut self, is_there: bool) {
        self.is_store_table_there = is_there;
        let recorded = if is_there {
            let of = |value: &str| format!("(SELECT {value} FROM {} WHERE `one` = 1)", self.store_name);
            format!("{}, {}", of("`identity`"), of("UNIX_TIMESTAMP(`fenced_at`)"))
        } else {
            "NULL, NULL".into()
        };
        self.identity = format!("SELECT {}, {recorded}", self.identity_expression);
    }

    /// Moves the mark of a name, and replies with the mark before as the last insert id; nothing where no number is left.
    pub(super) fn grant(&self, ask: &Ask) -> String {
        let Expressions { mark, step, increment, remainder, strict, cap, touched, .. } = &self.columns;
        let above = self.shape.columns().above;
        let (count, least) = (ask.count.min(MOST_STEP), ask.least.min(MOST_STEP));
        let floor = floor_of(self.shape, ask);
        let by = format!("NULLIF({increment}, 0)");
        // How far the first number that fits is from the first number that is free.
        let ahead = format!("MOD({remainder} + {increment} - MOD(MOD({mark}, {by}) + {above}, {by}), {by})");
        format!(
            "UPDATE {table} SET {mark} = LAST_INSERT_ID({mark}) + LEAST(\
               IF({strict}, {least}, GREATEST({count}, LEAST({step}, {MOST_STEP}))) * {increment}, {cap} - {mark}){touched} \
             WHERE {is} AND {mark} >= {floor} AND {mark} < {cap} AND {step} >= 1 AND {increment} >= 1 \
               AND {remainder} >= 0 AND {remainder} < {increment} AND {ahead} < {cap} - {mark}",
            table = self.table,
            is = self.columns.is(ask.name.as_str()),
        )
    }

    /// The rows of names, found by the key. A collation may find another spelling, which the reader drops.
    pub(super) fn rows<'a>(&self, names: impl Iterator<Item = &'a SequenceName>) -> String {
        let mut names: Vec<String> = names.map(|name| literal(name.as_str())).collect();
        if names.is_empty() {
            names.push("NULL".into());
        }
        let Expressions { name, .. } = &self.columns;
        format!("SELECT {} FROM {} WHERE {name} IN ({})", self.columns.list(), self.table, names.join(", "))
    }

    /// A name that the table takes for this one, or that is spelled like one of these.
    pub(super) fn similar(&self, asked: &SequenceName, spellings: &[String]) -> String {
        let all: Vec<String> =
            spellings.iter().map(String::as_str).chain([asked.as_str()]).map(literal).collect();
        let Expressions { name, .. } = &self.columns;
        let bytes = self.columns.bytes();
        format!(
            "SELECT {bytes} FROM {} WHERE {name} IN ({}) AND {bytes} <> CAST({} AS BINARY) LIMIT 1",
            self.table,
            all.join(", "),
            literal(asked.as_str())
        )
    }

    /// Rows in the order of their names' bytes.
    pub(super) fn list(&self, prefix: &str, after: &str, limit: usize) -> String {
        let bytes = self.columns.bytes();
        format!(
            "SELECT {} FROM {} WHERE {bytes} > CAST({} AS BINARY) AND LEFT({bytes}, {}) = CAST({} AS BINARY) \
             ORDER BY {bytes} LIMIT {limit}",
            self.columns.list(),
            self.table,
            literal(after),
            prefix.len(),
            literal(prefix)
        )
    }

    /// Raises the mark of a name.
    pub(super) fn raise(&self, name: &SequenceName, least: i64) -> String {
        let Expressions { mark, touched, .. } = &self.columns;
        format!(
            "UPDATE {} SET {mark} = GREATEST({mark}, {least}){touched} WHERE {}",
            self.table,
            self.columns.is(name.as_str())
        )
    }

    /// Notes where a fence says that new names begin, and locks that row, or the gap that it would be in.
    pub(super) fn note_least(&self) -> String {
        let Expressions { name, mark, .. } = &self.columns;
        let new_names = literal(SequenceName::of_new_names().as_str());
        format!(
            "SELECT MAX({mark}) INTO @xuid_least FROM {} WHERE {name} = {new_names} LOCK IN SHARE MODE",
            self.table
        )
    }

    /// Raises the mark of a name that was made in this transaction to what was noted.
    pub(super) fn raise_made(&self, made: &SequenceName) -> String {
        let Expressions { mark, .. } = &self.columns;
        format!(
            "UPDATE {} SET {mark} = @xuid_least WHERE {} AND @xuid_made = 1 AND {mark} < @xuid_least",
            self.table,
            self.columns.is(made.as_str())
        )
    }

    /// Writes an identity.
    pub(super) fn note(&self, identity: &str) -> String {
        let identity = literal(identity);
        format!(
            "INSERT INTO {} (`one`, `identity`) VALUES (1, {identity}) ON DUPLICATE KEY UPDATE `identity` = {identity}",
            self.store_name
        )
    }

    /// Writes an identity, and the time of a fence: later than the last one, and than that of `after`, also where a clock was
    /// ahead then.
    pub(super) fn record(&self, identity: &str, after: Option<f64>) -> String {
        let identity = literal(identity);
        let later = |than: &str| format!("COALESCE({than} + INTERVAL 1000 MICROSECOND, now(3))");
        let after = later(&after.map_or("NULL".to_owned(), |after| format!("FROM_UNIXTIME({after:.3})")));
        let last = later("`fenced_at`");
        format!(
            "INSERT INTO {} (`one`, `identity`, `fenced_at`) VALUES (1, {identity}, GREATEST(now(3), {after})) \
             ON DUPLICATE KEY UPDATE `identity` = {identity}, `fenced_at` = GREATEST(now(3), {after}, {last})",
            self.store_name
        )
    }

    /// Makes a row, if there is none of a name that the table takes for the same. Nothing else is ignored: what `IGNORE`
    /// would cut or round is an error here.
    pub(super) fn create(&self, table: &FoundTable, name: &SequenceName, new: &NewSequence) -> String {
        let (columns, settings) = (self.shape.columns(), &new.settings);
        let mark = new.start - columns.above;
        let mut values = vec![
            (columns.name, literal(name.as_str())),
            (columns.mark, mark.to_string()),
            (columns.step, settings.step.to_string()),
        ];
        let mut add = |column: Option<&'static str>, value: String| {
            values.extend(column.map(|column| (column, value)));
        };
        add(columns.increment, settings.increment.to_string());
        add(columns.remainder, settings.remainder.to_string());
        add(columns.last, settings.last.to_string());
        add(columns.strict, u8::from(settings.strict).to_string());
        add(columns.version, "0".into());
        let is_tiny_id = self.shape == Shape::TinyId;
        add(Some("begin_id").filter(|column| is_tiny_id && table.has(column)), mark.to_string());
        add(Some("update_time").filter(|column| table.has_integer(column)), "UNIX_TIMESTAMP()".into());
        if let Some(description) = &new.description {
            add(Some("description").filter(|column| table.has(column)), literal(description));
        }
        let names: Vec<String> = values.iter().map(|(column, _)| quoted(column)).collect();
        let given: Vec<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
        let name_column = &self.columns.name;
        format!(
            "INSERT INTO {} ({}) VALUES ({}) ON DUPLICATE KEY UPDATE {name_column} = {name_column}",
            self.table,
            names.join(", "),
            given.join(", "),
        )
    }

    /// Alters the row of a name; `None` if there is nothing to alter.
    pub(super) fn alter(
        &self,
        table: &FoundTable,
        name: &SequenceName,
        alteration: &Alteration,
    ) -> Option<String> {
        let Expressions { mark, step, last, .. } = &self.columns;
        let (mut changes, mut condition) = (Vec::new(), String::new());
        if let Some(number) = alteration.step {
            changes.push(format!("{step} = {number}"));
        }
        if let (Some(new), Some(_)) = (alteration.last, self.shape.columns().last) {
            match new {
                NewLast::At(number) => {
                    let number = number.min(HIGHEST);
                    changes.push(format!("{last} = {number}"));
                    condition = format!(" AND {last} <= {number}");
                }
                // Below a mark of 0 there is no number to be the last. Assignments are made from left to right.
                NewLast::Retired => {
                    changes.push(format!("{mark} = GREATEST({mark}, 1), {last} = {mark} - 1"));
                }
            }
        }
        if let Some(description) = alteration.description.as_ref().filter(|_| table.has("description")) {
            changes.push(format!("`description` = NULLIF({}, '')", literal(description)));
        }
        (!changes.is_empty()).then(|| {
            format!(
                "UPDATE {} SET {} WHERE {}{condition}",
                self.table,
                changes.join(", "),
                self.columns.is(name.as_str())
            )
        })
    }
}
