package dashboard

import "github.com/outboxkit/outbox-go/outbox"

// Forget makes the next pages read again what they show, as after a change by an operator.
func (d *Dashboard) Forget() {
	for _, s := range d.sites.fixed {
		s.sampler.forget()
	}
}

// TakePlaces takes all places of an outbox's readers, and returns a function that gives one back.
func (d *Dashboard) TakePlaces(outbox string) (leave func()) {
	for range d.config.MaxReaders {
		leave = d.sites.fixed[outbox].gate.Enter(d.ending)
	}
	return leave
}

// Target writes the target of an entry of the audit log.
func Target(e outbox.AuditEntry) string { return string(targetLinks(&e)) }
