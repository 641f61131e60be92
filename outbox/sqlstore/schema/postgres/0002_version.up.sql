-- Autovacuum comes early, for the dead rows of a large table would be many: by default, a
-- fifth of it.
ALTER TABLE outbox_event SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- The version of the schema. Builds that need an older one, down to min_version, work with
-- this table too.
INSERT INTO outbox_event_control (kind, name, value) VALUES ('schema', 'version', '{"version":2,"min_version":1}') ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value;
