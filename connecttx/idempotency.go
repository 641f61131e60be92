package connecttx

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	// KeyHeader is the header of a request with the key that the client chose; see [Idempotency].
	KeyHeader = "Idempotency-Key"
	// ReplayedHeader with the value "true" is the header of an answer that was stored with a key and is
	// sent again. In an error it is in the error's metadata.
	ReplayedHeader = "Idempotent-Replayed"
)

// Idempotency lets a client send a unary call again that got no answer. The client chooses a key for
// each call and sends the key in the header Idempotency-Key. The key and the answer are stored in the
// transaction of the call, and the same call with the same key gets the stored answer, also over another
// protocol. A call that was rolled back stores nothing, so that the client may send it again.
//
// Another call with the same key is answered CodeInvalidArgument. The same call while the first is
// running and does not end in time is answered CodeAborted. Requests and responses are protocol buffers,
// whose types are registered. Headers, trailers and the metadata of errors are not stored. Interceptors
// outside get a stored answer as a [connect.AnyResponse] that is no [*connect.Response].
type Idempotency struct {
	// Keys stores keys and answers: the result of [idempotency.New]. Required.
	Keys *idempotency.Keys
	// Required selects the calls that are answered CodeInvalidArgument without a key. By default keys
	// are optional.
	Required func(ctx context.Context, req connect.AnyRequest) bool
	// Scope is whose key it is: the tenant, or the user. Two scopes never share a key. Without Scope, a
	// client that guesses a key and the request gets the answer of another client.
	Scope func(ctx context.Context, req connect.AnyRequest) string
}

// keyed is the transaction of a call with a key.
type keyed struct {
	attempt *idempotency.Attempt
	answer  idempotency.Answer
}

func (k *keyed) Commit() error   { return k.attempt.Commit(k.answer) }
func (k *keyed) Rollback() error { return k.attempt.Rollback() }

// failure is a stored error.
type failure struct {
	Message string   `json:"message"`
	Details []detail `json:"details,omitempty"`
}

type detail struct {
	Type  string `json:"type"`
	Value []byte `json:"value"`
}

// keep notes the answer that is to be stored. Its status is the code, 0 for a success.
func (k *keyed) keep(response connect.AnyResponse, err error) (failed error) {
	if err != nil {
		e := asSent(err)
		k.answer.Status = int(cmp.Or(e.Code(), connect.CodeUnknown)) // 0 is a success
		k.answer.Body, failed = json.Marshal(failureOf(e))
		return failed
	}
	message, isProto := response.Any().(proto.Message)
	if !isProto {
		return fmt.Errorf("connecttx: the response is a %T; a call with a key needs protocol buffers", response.Any())
	}
	packed, err := anypb.New(message)
	if err == nil {
		k.answer.Body, err = proto.Marshal(packed)
	}
	return err
}

// asSent is an error as connect sends it.
func asSent(err error) *connect.Error {
	var e *connect.Error
	if errors.As(err, &e) && e != nil {
		return e
	}
	return connect.NewError(codeOf(err, connect.CodeUnknown), err)
}

func failureOf(e *connect.Error) failure {
	f := failure{Message: e.Message()}
	for _, d := range e.Details() {
		f.Details = append(f.Details, detail{d.Type(), d.Bytes()})
	}
	return f
}

// replayed is a response whose type is known when the program runs.
type replayed struct {
	connect.AnyResponse // for the headers

	message proto.Message
}

// Any returns the message.
func (r replayed) Any() any { return r.message }

// replay is the answer of a call that was done before.
func replay(answer idempotency.Answer) (connect.AnyResponse, error) {
	if answer.Status != 0 {
		return nil, replayFailure(connect.Code(answer.Status), answer.Body)
	}
	var packed anypb.Any
	if err := proto.Unmarshal(answer.Body, &packed); err != nil {
		return nil, unreadable(err)
	}
	message, err := packed.UnmarshalNew()
	if err != nil {
		return nil, unreadable(err)
	}
	r := replayed{connect.NewResponse(&struct{}{}), message}
	r.Header().Set(ReplayedHeader, "true")
	return r, nil
}

func replayFailure(code connect.Code, body []byte) error {
	var f failure
	if err := json.Unmarshal(body, &f); err != nil {
		return unreadable(err)
	}
	e := connect.NewError(code, errors.New(f.Message))
	for _, d := range f.Details {
		added, err := connect.NewErrorDetail(&anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: d.Value})
		if err != nil {
			return unreadable(err)
		}
		e.AddDetail(added)
	}
	e.Meta().Set(ReplayedHeader, "true")
	return e
}

func unreadable(err error) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf("connecttx: reading a stored answer: %w", err))
}

// request is the call with the key; without a key, the Key is empty.
func (config *Idempotency) request(ctx context.Context, req connect.AnyRequest) (r idempotency.Request, err error) {
	keys := req.Header().Values(KeyHeader)
	switch {
	case len(keys) == 0 && config.Required != nil && config.Required(ctx, req):
		return r, invalid("the header " + KeyHeader + " is required: a string that the client chooses, and repeats when it sends the call again")
	case len(keys) == 0:
		return r, nil
	case len(keys) > 1 || keys[0] == "" || len(keys[0]) > idempotency.MaxKeyLength:
		return r, invalid(fmt.Sprintf("the header %s is not valid; send one value of 1 to %d characters", KeyHeader, idempotency.MaxKeyLength))
	}
	message, isProto := req.Any().(proto.Message)
	if !isProto {
		return r, connect.NewError(connect.CodeInternal, fmt.Errorf("connecttx: the request is a %T; a call with a key needs protocol buffers", req.Any()))
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return r, connect.NewError(connect.CodeInternal, fmt.Errorf("connecttx: hashing the request: %w", err))
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\n", req.Spec().Procedure)
	h.Write(body)
	r.Key, r.Fingerprint = keys[0], h.Sum(nil)
	if config.Scope != nil {
		r.Scope = config.Scope(ctx, req)
	}
	return r, nil
}

func invalid(text string) error {
	return connect.NewError(connect.CodeInvalidArgument, errors.New(text))
}

// refusal is the error of a call whose key was refused.
func refusal(err error) error {
	switch {
	case errors.Is(err, idempotency.ErrRunning):
		return connect.NewError(connect.CodeAborted, errors.New("a call with this key is still running; send the call again later"))
	case errors.Is(err, idempotency.ErrNotKept):
		return connect.NewError(connect.CodeAlreadyExists, errors.New("the call was done before, and its answer was not stored"))
	case errors.Is(err, idempotency.ErrOtherRequest):
		return invalid("this key was used for another call; use a key once")
	default:
		return newBeginError(err)
	}
}

// begin begins the transaction of a call. k is not nil if the call has a key; a call that was done
// before has no transaction.
func (i *interceptor) begin(ctx context.Context, req connect.AnyRequest) (txCtx context.Context, tx outbox.Transaction, k *keyed, err error) {
	var r idempotency.Request
	if i.Idempotency != nil {
		if r, err = i.Idempotency.request(ctx, req); err != nil {
			return nil, nil, nil, err
		}
	}
	if r.Key == "" {
		txCtx, tx, err = i.Transactor.Begin(ctx, i.TxOptions)
		if err != nil {
			err = newBeginError(err)
		}
		return txCtx, tx, nil, err
	}
	txCtx, attempt, err := i.Idempotency.Keys.Begin(ctx, i.Transactor, i.TxOptions, r)
	if err != nil {
		return nil, nil, nil, refusal(err)
	}
	k = &keyed{attempt: attempt}
	return txCtx, k, k, nil
}
