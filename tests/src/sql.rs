//! A blocking session with a database, for what a test says to it behind the back of what it tests.

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use tokio::runtime::Runtime;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// The session. Its statements are sent as they are.
pub struct Sql {
    // Before the runtime, which it needs to end.
    client: Client,
    runtime: Runtime,
}

enum Client {
    Postgres(tokio_postgres::Client),
    MySql(Box<mysql_async::Conn>),
}

impl Sql {
    /// With a PostgreSQL server.
    pub fn postgres(url: &str) -> Result<Self> {
        let runtime = runtime()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            // It ends with the client; what went wrong is said to whoever waits for an answer.
            tokio::spawn(async { drop(connection.await) });
            anyhow::Ok(client)
        })?;
        Ok(Self { client: Client::Postgres(client), runtime })
    }

    /// With a MariaDB or MySQL server.
    pub fn mysql(url: &str) -> Result<Self> {
        let runtime = runtime()?;
        let opts =
            mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(url)?).prefer_socket(false);
        let conn = runtime.block_on(mysql_async::Conn::new(opts))?;
        Ok(Self { client: Client::MySql(Box::new(conn)), runtime })
    }

    /// Does one or several statements.
    pub fn exec(&mut self, statements: &str) -> Result<()> {
        let Self { client, runtime } = self;
        runtime.block_on(async {
            match client {
                Client::Postgres(client) => Ok(client.batch_execute(statements).await?),
                Client::MySql(conn) => Ok(conn.query_drop(statements).await?),
            }
        })
    }

    /// The rows of one statement, each value as text; NULL is empty.
    pub fn rows(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        let Self { client, runtime } = self;
        runtime.block_on(async {
            match client {
                Client::Postgres(client) => {
                    let messages = client.simple_query(statement).await?;
                    let row = |message| match message {
                        SimpleQueryMessage::Row(row) => {
                            Some((0..row.len()).map(|at| row.get(at).unwrap_or("").to_owned()).collect())
                        }
                        _ => None,
                    };
                    Ok(messages.into_iter().filter_map(row).collect())
                }
                Client::MySql(conn) => {
                    let rows: Vec<mysql_async::Row> = conn.query(statement).await?;
                    Ok(rows.into_iter().map(|row| row.unwrap().iter().map(text).collect()).collect())
                }
            }
        })
    }

    /// Does one statement; how many rows it changed.
    pub fn changed(&mut self, statement: &str) -> Result<u64> {
        let Self { client, runtime } = self;
        runtime.block_on(async {
            match client {
                Client::Postgres(client) => Ok(client.execute_typed(statement, &[]).await?),
                Client::MySql(conn) => Ok(conn.query_iter(statement).await?.affected_rows()),
            }
        })
    }

    /// The one number that a statement selects.
    pub fn number(&mut self, statement: &str) -> Result<u64> {
        let rows = self.rows(statement)?;
        let value =
            rows.first().and_then(|row| row.first()).with_context(|| format!("no row: {statement}"))?;
        value.parse().with_context(|| format!("{value:?} of {statement}"))
    }
}

fn text(value: &mysql_async::Value) -> String {
    match value {
        mysql_async::Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        mysql_async::Value::Int(number) => number.to_string(),
        mysql_async::Value::UInt(number) => number.to_string(),
        _ => String::new(),
    }
}

fn runtime() -> Result<Runtime> {
    // A thread of its own keeps a connection alive between two statements.
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}
