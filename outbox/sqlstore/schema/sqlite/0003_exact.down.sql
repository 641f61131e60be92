INSERT INTO outbox_event_control (kind, name, value) VALUES ('schema', 'version', '{"version":2,"min_version":1}') ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value;
