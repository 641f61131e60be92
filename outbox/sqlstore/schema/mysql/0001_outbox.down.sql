-- This deletes all events.
DROP TABLE IF EXISTS outbox_event_control;
DROP TABLE IF EXISTS outbox_event;
