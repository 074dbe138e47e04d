//! Load over TCP.
