//! Subscribers in an embedded SQLite file
