package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// MaxKeyLength is the longest key, in bytes.
const MaxKeyLength = 255

var (
	// ErrRunning says that another request with the same key is still running, and did not end in time.
	// The client may send the request again later.
	ErrRunning = errors.New("idempotency: another request with this key is still running")
	// ErrOtherRequest says that the key belongs to a request with another fingerprint.
	ErrOtherRequest = errors.New("idempotency: the key was used for another request")
	// ErrNotKept says that the request took effect, and that the answer was not kept.
	ErrNotKept = errors.New("idempotency: the request was done before, and its answer was not kept")
)

// Request names a request.
type Request struct {
	// Scope is whose key it is, such as a tenant or a user. Two scopes never share a key.
	Scope string
	// Key is the client's choice: 1 to [MaxKeyLength] bytes. Required.
	Key string
	// Fingerprint is a hash of the request, at most 32 bytes. A key that comes with another
	// fingerprint is refused.
	Fingerprint []byte
}

// hash names the key in the table.
func (r *Request) hash() (sum [32]byte) {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(r.Scope)+len(r.Key)), uint64(len(r.Scope)))
	b = append(append(b, r.Scope...), r.Key...)
	return sha256.Sum256(b)
}

func (r *Request) check() error {
	var errs []error
	if n := len(r.Key); n == 0 || n > MaxKeyLength {
		errs = append(errs, &outbox.FieldError{Field: "Request.Key", Problem: fmt.Sprintf("has %d bytes; use 1 to %d", n, MaxKeyLength)})
	}
	if n := len(r.Fingerprint); n > sha256.Size {
		errs = append(errs, &outbox.FieldError{Field: "Request.Fingerprint", Problem: fmt.Sprintf("has %d bytes, at most %d are allowed; use a hash", n, sha256.Size)})
	}
	return errors.Join(errs...)
}

// Attempt is a request with a key: either its transaction is open, or the request was done before. An
// Attempt is for one goroutine.
type Attempt struct {
	keys        *Keys
	transactor  outbox.Transactor
	ctx         context.Context // of the request, without the transaction
	hash        [32]byte
	fingerprint []byte

	answer *Answer // of a request that was done before
	tx     outbox.Transaction
	scope  outbox.TxScope
	leave  func()
	ended  atomic.Bool
}

// Begin begins the transaction of a request and records the key in the transaction, unless the request
// was done before. The context carries the transaction, as after [outbox.Transactor.Begin]; opts may be
// nil. While another request with the same key is open, in any process, Begin waits: in this process for
// [Config].Wait at most, without a connection, and then in the database for the same time at most. A
// context that carries a transaction of the pool already is refused, because a key needs a transaction
// that ends with the request.
//
// Begin returns [ErrRunning], [ErrOtherRequest], [ErrNotKept], an [outbox.FieldError], or an error of the
// database. No transaction is open then.
func (k *Keys) Begin(ctx context.Context, t outbox.Transactor, opts *sql.TxOptions, r Request) (context.Context, *Attempt, error) {
	if err := k.check(ctx, t, &r); err != nil {
		return ctx, nil, err
	}
	a := &Attempt{keys: k, transactor: t, ctx: ctx, hash: r.hash(), fingerprint: padded(r.Fingerprint)}
	leave, err := k.turn(ctx, a.hash)
	if err != nil {
		return ctx, nil, err
	}
	a.leave = leave
	defer func() {
		if a.tx == nil { // also after a panic
			leave()
		}
	}()
	txCtx, err := a.begin(opts)
	if err != nil {
		return ctx, nil, err
	}
	return txCtx, a, nil
}

// check checks the arguments of Begin.
func (k *Keys) check(ctx context.Context, t outbox.Transactor, r *Request) error {
	err := r.check()
	if nilness.IsNil(t) {
		err = errors.Join(err, &outbox.FieldError{Field: "Begin t", Problem: "is nil; give an adapter"})
	}
	if scope, found := outbox.ScopeFromContext(ctx, k.source); found && scope.Active() {
		err = errors.Join(err, &outbox.FieldError{
			Field: "Begin ctx", Problem: "carries a transaction of the pool; a key needs a transaction that ends with the request",
		})
	}
	return err
}

// turn waits for the turn of a request in this process.
func (k *Keys) turn(ctx context.Context, hash [32]byte) (leave func(), err error) {
	wait, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	leave, err = k.turns.take(wait, hash)
	if err != nil && ctx.Err() == nil {
		err = ErrRunning
	}
	return leave, err
}

// padded is a fingerprint as the table has it.
func padded(fingerprint []byte) []byte {
	b := make([]byte, sha256.Size)
	copy(b, fingerprint)
	return b
}

// begin begins the transaction with the key in it, or finds the answer.
func (a *Attempt) begin(opts *sql.TxOptions) (context.Context, error) {
	for began := time.Now(); ; {
		ctx, first, err := a.reserve(opts)
		switch {
		case err == nil && first:
			return ctx, nil
		case err == nil:
			var found *row
			if found, err = a.keys.get(a.ctx, a.hash[:]); err != nil {
				return nil, err
			}
			if found != nil {
				return a.ctx, a.found(found)
			}
			err = ErrRunning // the key was purged meanwhile, or a replica is read
		case !sqlerr.IsDeadlock(err): // else the transaction gave way to another that records the same key
			return nil, err
		}
		if a.ctx.Err() != nil || time.Since(began) > a.keys.wait {
			return nil, err
		}
		time.Sleep(time.Duration(1+rand.IntN(10)) * time.Millisecond)
	}
}

// reserve begins a transaction and records the key; without the key, the transaction is rolled back.
func (a *Attempt) reserve(opts *sql.TxOptions) (ctx context.Context, first bool, err error) {
	ctx, tx, err := a.transactor.Begin(a.ctx, opts)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if !first {
			_ = tx.Rollback()
		}
	}()
	scope, found := outbox.ScopeFromContext(ctx, a.keys.source)
	if !found {
		return nil, false, &outbox.FieldError{
			Field: "idempotency.Config.DB", Problem: "is not the pool of the Transactor; give the same pool to both",
		}
	}
	// A transaction with a callback reports that the outcome of its COMMIT is unknown.
	if err = scope.AtCommit(func() {}); err != nil {
		return nil, false, err
	}
	wait, cancel := context.WithTimeout(a.ctx, a.keys.wait)
	defer cancel()
	first, err = a.keys.record(wait, scope, a.hash[:], a.fingerprint)
	if first {
		a.tx, a.scope = tx, scope
	} else if deadline, _ := wait.Deadline(); err != nil && a.ctx.Err() == nil && (!time.Now().Before(deadline) || isLockTimeout(err)) {
		err = ErrRunning
	}
	return ctx, first, err
}

// isLockTimeout reports whether the database waited long enough for a row: MySQL's 1205, PostgreSQL's
// lock_timeout.
func isLockTimeout(err error) bool {
	return sqlerr.HasNumber(err, 1205) || sqlerr.HasState(err, "55P03")
}

// found takes the answer of a request that was done before.
func (a *Attempt) found(r *row) error {
	switch {
	case !bytes.Equal(r.fingerprint, a.fingerprint):
		return ErrOtherRequest
	case r.answer == nil:
		return ErrNotKept
	}
	a.answer = r.answer
	return nil
}

// Done reports whether the request was done before; no transaction is open then.
func (a *Attempt) Done() bool { return a.answer != nil }

// Answer is the answer of a request that was done before; see [Attempt.Done].
func (a *Attempt) Answer() Answer { return *a.answer }

// Commit stores the answer with the key and commits. If the answer of the database to the COMMIT is
// lost, Commit looks the key up, and then knows whether the transaction was committed. The error
// is [outbox.ErrOutcomeUnknown] only if that fails too.
func (a *Attempt) Commit(answer Answer) error {
	if a.tx == nil || !a.ended.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	defer a.leave()
	answer.Headers = valid(answer.Headers)
	if err := a.keys.put(a.ctx, a.scope, a.hash[:], &answer); err != nil {
		if errors.Is(err, outbox.ErrNoTransaction) { // the transaction is over, and Commit says why
			return cmp.Or(a.tx.Commit(), err)
		}
		_ = a.tx.Rollback()
		return err
	}
	err := a.tx.Commit()
	if errors.Is(err, outbox.ErrOutcomeUnknown) {
		return a.settle(&answer, err)
	}
	return err
}

// valid are the headers whose values JSON can have.
func valid(headers map[string][]string) map[string][]string {
	if headers == nil {
		return map[string][]string{}
	}
	headers = maps.Clone(headers)
	maps.DeleteFunc(headers, func(_ string, values []string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
	})
	return headers
}

// settle finds out whether a transaction was committed whose COMMIT had no answer. Recording the key
// again waits until the database has ended that transaction. The row that stays is this request's: the
// other requests with the key wait for this one to be over.
func (a *Attempt) settle(answer *Answer, unknown error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), a.keys.wait)
	defer cancel()
	for {
		again := a.again(ctx)
		_, err := again.begin(nil)
		switch {
		case err == nil && again.tx != nil:
			_ = again.tx.Rollback()
			return fmt.Errorf("idempotency: the transaction was rolled back: %s", unknown.Error()) //nolint:errorlint // the outcome is known
		case err == nil && again.answer.equal(answer):
			return nil
		case err == nil, errors.Is(err, ErrOtherRequest), errors.Is(err, ErrNotKept):
			return fmt.Errorf("idempotency: the transaction was rolled back, and another request has the key: %s", unknown.Error()) //nolint:errorlint // the outcome is known
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; looking the key up: %w", unknown, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// again is another attempt of the same request, which has the turn already.
func (a *Attempt) again(ctx context.Context) *Attempt {
	return &Attempt{keys: a.keys, transactor: a.transactor, ctx: ctx, hash: a.hash, fingerprint: a.fingerprint, leave: func() {}}
}

func (a *Answer) equal(other *Answer) bool {
	return a.Status == other.Status && bytes.Equal(a.Body, other.Body) && (a.Body == nil) == (other.Body == nil) &&
		maps.EqualFunc(a.Headers, other.Headers, slices.Equal)
}

// Rollback rolls back: nothing is stored, and the key is free. Rollback changes nothing after another
// call of it or of [Attempt.Commit], or if the request was done before, and then returns
// [sql.ErrTxDone].
func (a *Attempt) Rollback() error {
	if a.tx == nil || !a.ended.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	defer a.leave()
	return a.tx.Rollback()
}

// Refuse rolls back, and stores an answer for the key all the same. Between the two, a request of
// another process may take the key: Refuse returns the answer that the key has then, and whether it is
// the given answer. After an error nothing is known to be stored.
func (a *Attempt) Refuse(answer Answer) (stored Answer, own bool, err error) {
	if a.tx == nil || !a.ended.CompareAndSwap(false, true) {
		return answer, false, sql.ErrTxDone
	}
	defer a.leave()
	if err := a.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return answer, false, err
	}
	again := a.again(a.ctx)
	if _, err := again.begin(nil); err != nil {
		return answer, false, err
	}
	if again.Done() {
		return again.Answer(), false, nil
	}
	return answer, true, again.Commit(answer)
}
