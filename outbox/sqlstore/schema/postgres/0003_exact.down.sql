-- JSONB refuses some payloads, such as one with half of a surrogate pair or with \u0000.
ALTER TABLE outbox_event ALTER COLUMN payload TYPE JSONB USING payload::jsonb;
INSERT INTO outbox_event_control (kind, name, value) VALUES ('schema', 'version', '{"version":2,"min_version":1}') ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value;
