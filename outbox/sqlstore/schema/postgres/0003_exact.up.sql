-- JSON keeps a payload as it was written. JSONB orders its keys, and drops spaces and keys
-- that are there twice. On a large table this takes minutes, in which nobody writes.
ALTER TABLE outbox_event ALTER COLUMN payload TYPE JSON USING payload::json;
INSERT INTO outbox_event_control (kind, name, value) VALUES ('schema', 'version', '{"version":3,"min_version":1}') ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value;
