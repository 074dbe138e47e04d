//! The statements, for the columns of a table that was looked at.

use super::super::beside::known_columns;
use super::super::options::DatabaseOptions;
use super::super::table::{FoundTable, MOST_TINY_TOKENS, Shape};
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Alteration, HIGHEST, MOST_STEP, NewLast, NewSequence};

/// Whether there is a table where the identity is written, and it may be read.
pub(super) const STORE_TABLE: &str =
    "SELECT coalesce(has_table_privilege(to_regclass($1)::oid, 'SELECT'), false)";

/// The database's name for itself: what an unprivileged role may read, too. `timeline_id` of `pg_control_checkpoint`
/// would be the old one until the first checkpoint after a promotion.
const IDENTITY: &str = "SELECT system_identifier, pg_walfile_name(pg_current_wal_insert_lsn())::text, RECORDED FROM pg_control_system()";

/// The time of a fence. What is null is left out.
const AFTER: &str = "GREATEST(now(), to_timestamp($2) + interval '1 millisecond')";

/// What stands for the identity that was written and the time of it, where there is no table for them.
const NOTHING_RECORDED: &str = "NULL::text, NULL::text";

/// The statements of a connection.
pub(super) struct Statements {
    pub(super) begin: String,
    pub(super) identity: String,
    pub(super) lock: String,
    pub(super) grant: String,
    pub(super) similar: String,
    pub(super) read: String,
    pub(super) list: String,
    pub(super) raise: String,
    /// Ends when every statement that changes the table has been committed that began before it.
    pub(super) wait_for_new: String,
    /// Writes the identity, and with the time of a fence.
    pub(super) note: String,
    pub(super) record: String,
    pub(super) make_store: String,
    /// `"schema"."xuid_store"`
    pub(super) store_name: String,
    table: String,
    is_store_table_there: bool,
}

/// `"part"`
pub(super) fn quoted(part: &str) -> String {
    format!("\"{}\"", part.replace('"', "\"\""))
}

/// What makes a store table.
pub(super) fn make_store(store_name: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {store_name} (
           one       smallint PRIMARY KEY CHECK (one = 1),
           identity  varchar(128) NOT NULL,
           fenced_at timestamptz)"
    )
}

/// What makes a table of shape `xuid`.
pub(super) fn make_sequences(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (
           name        varchar(128) COLLATE \"C\" PRIMARY KEY,
           next        bigint NOT NULL CHECK (next >= 0),
           last        bigint NOT NULL DEFAULT {HIGHEST},
           step        bigint NOT NULL DEFAULT 1000 CHECK (step >= 1),
           increment   integer NOT NULL DEFAULT 1 CHECK (increment >= 1),
           remainder   integer NOT NULL DEFAULT 0 CHECK (remainder >= 0 AND remainder < increment),
           strict      boolean NOT NULL DEFAULT false,
           description varchar(256),
           updated_at  timestamptz NOT NULL DEFAULT now())"
    )
}

/// Each column of a row, or what stands for one that the shape does not have.
struct Expressions {
    name: &'static str,
    mark: &'static str,
    step: &'static str,
    increment: &'static str,
    remainder: &'static str,
    last: String,
    strict: &'static str,
    description: &'static str,
    /// The highest value of the mark's column.
    cap: String,
    /// What else a grant changes, each behind a comma.
    touched: &'static str,
}

impl Expressions {
    fn of(table: &FoundTable) -> Self {
        let columns = table.shape.columns();
        let touched = match table.shape {
            Shape::Xuid if table.has("updated_at") => ", updated_at = now()",
            Shape::Xuid => "",
            // A timestamp is the database's own, by a trigger if there is one.
            Shape::Leaf if !table.has_integer("update_time") => "",
            Shape::Leaf => ", update_time = extract(epoch FROM now())::bigint",
            Shape::TinyId if table.has("update_time") => ", version = t.version + 1, update_time = now()",
            Shape::TinyId => ", version = t.version + 1",
        };
        Self {
            name: columns.name,
            mark: columns.mark,
            step: columns.step,
            increment: columns.increment.unwrap_or("1"),
            remainder: columns.remainder.unwrap_or("0"),
            last: columns.last.map_or(HIGHEST.to_string(), str::to_owned),
            strict: columns.strict.unwrap_or("false"),
            description: if table.has("description") { "description::text" } else { "NULL::text" },
            // An exclusive mark ends one above the last number, and a bigint at the highest.
            cap: columns
                .last
                .map_or(HIGHEST.to_string(), |last| format!("(LEAST({last}, {}) + 1)", HIGHEST - 1)),
            touched,
        }
    }

    /// A row's columns in the order of `FoundRow`.
    fn list(&self) -> String {
        let Self { name, mark, step, increment, remainder, last, strict, description, .. } = self;
        format!(
            "{name}::text, {mark}::bigint, {step}::bigint, {increment}::bigint, {remainder}::bigint, \
             {last}::bigint, {strict}::boolean, {description}"
        )
    }
}

/// Tables of schema `$1` and their columns, as far as they are known. What the user has no right to is among them.
pub(super) fn columns_of() -> String {
    format!(
        "SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition \
           AND a.attnum > 0 AND NOT a.attisdropped AND a.attname IN ({})",
        known_columns()
    )
}

impl Statements {
    pub(super) fn new(table: &FoundTable, store_name: String, options: &DatabaseOptions) -> Self {
        let found = Expressions::of(table);
        let list = found.list();
        let above = table.shape.columns().above;
        let Expressions { name, mark, step, increment, remainder, strict, cap, touched, .. } = &found;
        let table = &table.table;
        // Byte by byte, whatever the column's collation takes for equal.
        let is = |other: &str| {
            format!("t.{name} = {other} AND t.{name}::text COLLATE \"C\" = {other} COLLATE \"C\"")
        };
        // How far the first number that fits is from the first number that is free.
        let by = format!("NULLIF({increment}, 0)");
        let ahead = format!(
            "mod(({remainder})::bigint + {increment} - mod(mod(t.{mark}, {by}) + {above}, {by}), {by})"
        );
        let (statement, lock) = (options.statement.as_millis(), options.lock.as_millis());
        Self {
            // `on` and no less, and stronger where the session's is; and no warning is kept from us.
            begin: format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
                 SELECT set_config('synchronous_commit', \
                   CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true), \
                   set_config('statement_timeout', '{statement}', true), set_config('lock_timeout', '{lock}', true), \
                   set_config('client_min_messages', 'warning', true)"
            ),
            identity: IDENTITY.replace("RECORDED", NOTHING_RECORDED),
            lock: format!(
                "SELECT {list} FROM {table} t WHERE t.{name} = ANY($1) AND t.{name}::text COLLATE \"C\" = ANY($1) \
                 ORDER BY t.{name}::text COLLATE \"C\" FOR UPDATE"
            ),
            // The number of ids times the increment, and no further than the cap; nothing where no number is left.
            grant: format!(
                "UPDATE {table} t SET {mark} = t.{mark} + LEAST((CASE WHEN {strict} THEN g.least \
                   ELSE GREATEST(g.count, LEAST({step}, {MOST_STEP})) END) * {increment}, {cap} - t.{mark}){touched} \
                 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) g(name, count, least, floor) \
                 WHERE {is} AND t.{mark} BETWEEN g.floor AND {cap} - 1 AND {step} >= 1 AND {increment} >= 1 \
                   AND {remainder} >= 0 AND {remainder} < {increment} AND {ahead} < {cap} - t.{mark} \
                 RETURNING t.{name}::text, t.{mark}::bigint",
                is = is("g.name")
            ),
            similar: format!(
                "SELECT t.{name}::text FROM {table} t WHERE (t.{name} = ANY($1) OR t.{name} = $2) \
                 AND t.{name}::text COLLATE \"C\" <> $2 COLLATE \"C\" LIMIT 1"
            ),
            read: format!("SELECT {list} FROM {table} t WHERE {is}", is = is("$1")),
            list: format!(
                "SELECT {list} FROM {table} t WHERE t.{name} COLLATE \"C\" > $1 COLLATE \"C\" AND starts_with(t.{name}::text, $2) \
                 ORDER BY t.{name} COLLATE \"C\" LIMIT $3"
            ),
            raise: format!(
                "UPDATE {table} t SET {mark} = GREATEST(t.{mark}, $2){touched} WHERE {is} RETURNING {list}",
                is = is("$1")
            ),
            wait_for_new: format!("LOCK TABLE {table} IN SHARE MODE"),
            note: format!(
                "INSERT INTO {store_name} (one, identity) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET identity = $1"
            ),
            // Later than the last one, and than the one of `$2`, also where a clock was ahead then.
            record: format!(
                "INSERT INTO {store_name} AS s (one, identity, fenced_at) VALUES (1, $1, {AFTER}) ON CONFLICT (one) \
                 DO UPDATE SET identity = $1, fenced_at = GREATEST({AFTER}, s.fenced_at + interval '1 millisecond')"
            ),
            make_store: make_store(&store_name),
            store_name,
            table: table.clone(),
            is_store_table_there: false,
        }
    }

    /// The tokens of a tinyid deployment whose table is in the same schema.
    pub(super) fn tiny_tokens(&self) -> String {
        let schema = self.store_name.trim_end_matches("\"xuid_store\"");
        format!("SELECT token::text, biz_type::text FROM {schema}\"tiny_id_token\" LIMIT {MOST_TINY_TOKENS}")
    }

    pub(super) fn is_store_table_there(&self) -> bool {
        self.is_store_table_there
    }

    /// Reads the written identity with each transaction, or not.
    pub(super) fn has_store_table(&mut self, is_there: bool) {
        self.is_store_table_there = is_there;
        let recorded = if is_there {
            let of = |value: &str| format!("(SELECT {value}::text FROM {} WHERE one = 1)", self.store_name);
            format!("{}, {}", of("identity"), of("extract(epoch FROM fenced_at)"))
        } else {
            NOTHING_RECORDED.into()
        };
        self.identity = IDENTITY.replace("RECORDED", &recorded);
    }

    /// Makes a row of name `$1` with description `$2`, if there is none and no fence says that new names begin higher.
    pub(super) fn create(&self, table: &FoundTable, new: &NewSequence) -> String {
        let (columns, settings) = (table.shape.columns(), &new.settings);
        let mark = new.start - columns.above;
        let mut values = vec![
            (columns.name, "$1".to_owned()),
            (columns.mark, mark.to_string()),
            (columns.step, settings.step.to_string()),
        ];
        let mut add = |column: Option<&'static str>, value: String| {
            values.extend(column.map(|column| (column, value)));
        };
        add(columns.increment, settings.increment.to_string());
        add(columns.remainder, settings.remainder.to_string());
        add(columns.last, settings.last.to_string());
        add(columns.strict, settings.strict.to_string());
        add(columns.version, "0".into());
        let is_tiny_id = table.shape == Shape::TinyId;
        add(Some("begin_id").filter(|column| is_tiny_id && table.has(column)), mark.to_string());
        add(
            Some("update_time").filter(|column| table.has_integer(column)),
            "extract(epoch FROM now())::bigint".into(),
        );
        add(Some("description").filter(|column| table.has(column)), "NULLIF($2::text, '')".into());
        let names: Vec<&str> = values.iter().map(|(column, _)| *column).collect();
        let given: Vec<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
        // A parameter that no column takes has a type all the same.
        format!(
            "INSERT INTO {place} AS t ({}) SELECT {} WHERE $2::text IS NOT NULL AND NOT EXISTS \
             (SELECT 1 FROM {place} n WHERE n.{} = '{}' AND n.{} > {mark}) ON CONFLICT DO NOTHING RETURNING {}",
            names.join(", "),
            given.join(", "),
            columns.name,
            SequenceName::of_new_names(),
            columns.mark,
            Expressions::of(table).list(),
            place = self.table,
        )
    }

    /// Alters the row of name `$1`; `$2` is the description. `None` if there is nothing to alter.
    pub(super) fn alter(&self, table: &FoundTable, alteration: &Alteration) -> Option<String> {
        let columns = table.shape.columns();
        let (name, mark) = (columns.name, columns.mark);
        let (mut changes, mut condition) = (Vec::new(), String::new());
        if let Some(step) = alteration.step {
            changes.push(format!("{} = {step}", columns.step));
        }
        if let (Some(new), Some(last)) = (alteration.last, columns.last) {
            match new {
                NewLast::At(number) => {
                    let number = number.min(HIGHEST);
                    changes.push(format!("{last} = {number}"));
                    condition = format!(" AND t.{last} <= {number}");
                }
                // Below a mark of 0 there is no number to be the last.
                NewLast::Retired => {
                    changes
                        .push(format!("{mark} = GREATEST(t.{mark}, 1), {last} = GREATEST(t.{mark}, 1) - 1"));
                }
            }
        }
        if alteration.description.is_some() && table.has("description") {
            changes.push("description = NULLIF($2::text, '')".into());
        }
        (!changes.is_empty()).then(|| {
            format!(
                "UPDATE {} t SET {} WHERE t.{name} = $1 AND t.{name}::text COLLATE \"C\" = $1 COLLATE \"C\" \
                 AND $2::text IS NOT NULL{condition} RETURNING {}",
                self.table,
                changes.join(", "),
                Expressions::of(table).list()
            )
        })
    }
}
