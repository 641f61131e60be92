// Package idempotency remembers the answer of a request by a key that the client chose, so that a
// request which is sent again takes effect once and gets the same answer.
//
// A client cannot know whether a request took effect when the answer got lost. It sends the request
// again with the same key. [Keys.Begin] records the key in the transaction of the request, and
// [Attempt.Commit] stores the answer there: the rows, the events, the key and the answer are committed
// together, or nothing is.
//
//	keys, err := idempotency.New(idempotency.Config{DB: db, Dialect: idempotency.Postgres})
//	...
//	ctx, attempt, err := keys.Begin(ctx, adapter, nil, idempotency.Request{Key: key, Fingerprint: sum})
//	if err != nil {
//		return err // such as ErrRunning
//	}
//	if attempt.Done() {
//		return send(attempt.Answer())
//	}
//	defer attempt.Rollback() // does nothing after Commit
//	answer, err := place(ctx, order) // in the transaction that ctx carries
//	if err != nil {
//		return err
//	}
//	if err := attempt.Commit(answer); err != nil {
//		return err
//	}
//	return send(answer)
//
// Web services need no such code: set the field Idempotency of the Transaction middleware's config.
package idempotency
