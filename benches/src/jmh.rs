//! A throughput runner in the manner of JMH.
