package httptx

// CommitError is the error that the error handler gets when the transaction of a request did not
// commit although the handler succeeded. Nothing of the response was sent. When errors.Is(err,
// [outbox.ErrOutcomeUnknown]) holds, the transaction may have committed: a client that tries again
// needs a key; see [Idempotency]. ErrOutcomeUnknown also reports a transaction that
// the handler ended itself.
type CommitError struct{ Err error }

// Error implements the error interface.
func (e *CommitError) Error() string {
	return "httptx: committing the request's transaction: " + e.Err.Error()
}

// Unwrap returns the cause: the error of the database, or the cause of the context's end when the
// client has gone.
func (e *CommitError) Unwrap() error { return e.Err }
