//! Behaviour of tables as a whole. `from_cassandra/` holds tables that Apache Cassandra wrote; see the README there.

mod crash;
mod damage;
mod fixture;
mod reading;
mod reencode;
