//! The stores of named sequences in PostgreSQL and MariaDB, on real private servers: what they grant side by side with
//! others, which databases they refuse, what comes of servers that are killed, stopped, promoted and cut off, and what
//! several of our servers issue on each kind of store.
//!
//! Nothing is judged by time but how soon our servers are back. A store's grants are held against each other and against the marks in the table.

#![expect(clippy::unwrap_used, reason = "a test: what is not there fails it")]

mod beside;
mod commands;
mod control;
mod cuts;
mod fixture;
mod grants;
mod kills;
mod new_names;
mod nodes;
mod pauses;
mod recipes;
mod replicas;
mod shapes;
mod unfit;
