package operjson

import (
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// AuditEntry is an [outbox.AuditEntry].
type AuditEntry struct {
	ID         string    `json:"id"`
	At         time.Time `json:"at"`
	By         string    `json:"by,omitempty"`
	From       string    `json:"from,omitempty"`
	Action     string    `json:"action"`
	Target     string    `json:"target,omitempty"`
	Count      int       `json:"count"`
	DeletionID string    `json:"deletion_id,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Incomplete bool      `json:"incomplete,omitempty"`
}

// Audit is a page of the audit log.
type Audit struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitempty"`
}

// AuditOf is a page of the audit log.
func AuditOf(page outbox.Page[outbox.AuditEntry]) Audit {
	answer := Audit{make([]AuditEntry, len(page.Rows)), page.Next}
	for i := range page.Rows {
		e := &page.Rows[i]
		answer.Entries[i] = AuditEntry{e.ID, e.At.UTC(), e.Name, e.From, e.Action, e.Target, e.Count, e.DeletionID, e.Reason, e.Incomplete}
	}
	return answer
}
