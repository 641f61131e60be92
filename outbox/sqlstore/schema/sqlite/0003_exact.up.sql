-- Version 3 changes the columns of PostgreSQL, MySQL and MariaDB. A text was exact here
-- before.
INSERT INTO outbox_event_control (kind, name, value) VALUES ('schema', 'version', '{"version":3,"min_version":1}') ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value;
