-- Indexes for some modes. Create the ones that you need.

-- WithAgeIndex: purging by age alone, as in WriterOnly.
CREATE INDEX idx_outbox_event_age ON outbox_event (created_at);
-- WithKeyIndex: what OrderedByKey reads.
CREATE INDEX idx_outbox_event_key ON outbox_event (status, aggregate_type, aggregate_id, available_at, created_at);
-- WithTenantIndex: reading tenants in turn.
CREATE INDEX idx_outbox_event_tenant ON outbox_event (status, tenant_id, available_at, created_at);
-- WithSearchIndex: the events of one aggregate id, for operators.
CREATE INDEX idx_outbox_event_search ON outbox_event (aggregate_id);
-- WithUniqueIndex: a pending event of a kind for each unique key. The index has no conditions, so a
-- virtual column is the key while the event is pending, and NULL afterwards.
ALTER TABLE outbox_event ADD COLUMN unique_key VARCHAR(128) CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */, ADD COLUMN unique_pending VARCHAR(128) CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */ GENERATED ALWAYS AS (CASE WHEN status IN (0, 2) THEN unique_key END) VIRTUAL;
CREATE UNIQUE INDEX idx_outbox_event_unique ON outbox_event (aggregate_type, event_type, unique_pending);
