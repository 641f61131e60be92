package outbox

// Split is the end of an event with several listeners of which some are not done.
type Split struct {
	Mark // of the event
	// Rows are those of the listeners.
	Rows []ListenerRow
}

// ListenerRow is a row for one of an event's listeners. It is inserted as NEW with the
// times of the envelope, and then marked with the outcome: RETRY, DEAD or a deferral.
type ListenerRow struct {
	Envelope Envelope
	Outcome  Outcome
	Mark     Mark // without a lease
}
