//! What agents say, know and use, in PostgreSQL.
