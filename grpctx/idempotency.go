package grpctx

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	// KeyMetadata is the metadata with the key that the client chose; see [Idempotency].
	KeyMetadata = "idempotency-key"
	// ReplayedMetadata with the value "true" is in the headers of an answer that was stored with a key
	// and is sent again.
	ReplayedMetadata = "idempotent-replayed"
)

// Idempotency lets a client send a call again that got no answer. The client chooses a key for each
// call and sends the key as metadata. The key and the answer are stored in the transaction of the call,
// and the same call with the same key gets the stored answer. A call that was rolled back stores
// nothing, so that the client may send it again.
//
// Another call with the same key is answered InvalidArgument. The same call while the first is running
// and does not end in time is answered Aborted. Requests and responses are protocol buffers, whose types
// are registered. Headers and trailers are not stored.
type Idempotency struct {
	// Keys stores keys and answers: the result of [idempotency.New]. Required.
	Keys *idempotency.Keys
	// Required selects the calls that are answered InvalidArgument without a key. By default keys are
	// optional.
	Required func(ctx context.Context, fullMethod string) bool
	// Scope is whose key it is: the tenant, or the user. Two scopes never share a key. Without Scope, a
	// client that guesses a key and the request gets the answer of another client.
	Scope func(ctx context.Context) string
}

// keyed is the transaction of a call with a key.
type keyed struct {
	attempt *idempotency.Attempt
	answer  idempotency.Answer
}

func (k *keyed) Commit() error   { return k.attempt.Commit(k.answer) }
func (k *keyed) Rollback() error { return k.attempt.Rollback() }

// keep notes the answer that is to be stored.
func (k *keyed) keep(response any, err error) error {
	message, isProto := response.(proto.Message)
	if err != nil {
		message, isProto = status.Convert(err).Proto(), true
	}
	if !isProto {
		return fmt.Errorf("grpctx: the response is a %T; a call with a key needs protocol buffers", response)
	}
	packed, err2 := anypb.New(message)
	if err2 == nil {
		k.answer.Body, err2 = proto.Marshal(packed)
	}
	k.answer.Status = int(status.Code(err))
	return err2
}

// replay is the answer of a call that was done before.
func replay(ctx context.Context, answer idempotency.Answer) (any, error) {
	var packed anypb.Any
	if err := proto.Unmarshal(answer.Body, &packed); err != nil {
		return nil, fmt.Errorf("grpctx: reading a stored answer: %w", err)
	}
	message, err := packed.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("grpctx: reading a stored answer: %w", err)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(ReplayedMetadata, "true")) // outside of a server there are no headers
	if answer.Status == int(codes.OK) {
		return message, nil
	}
	failure := status.New(codes.Code(answer.Status), "").Proto()
	proto.Merge(failure, message)
	return nil, status.ErrorProto(failure)
}

// request is the call with the key; without a key, the Key is empty.
func (config *Idempotency) request(ctx context.Context, fullMethod string, in any) (r idempotency.Request, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	keys := md.Get(KeyMetadata)
	switch {
	case len(keys) == 0 && config.Required != nil && config.Required(ctx, fullMethod):
		return r, status.Error(codes.InvalidArgument, "the metadata "+KeyMetadata+" is required: a string that the client chooses, and repeats when it sends the call again")
	case len(keys) == 0:
		return r, nil
	case len(keys) > 1 || keys[0] == "" || len(keys[0]) > idempotency.MaxKeyLength:
		return r, status.Errorf(codes.InvalidArgument, "the metadata %s is not valid; send one value of 1 to %d characters", KeyMetadata, idempotency.MaxKeyLength)
	}
	message, isProto := in.(proto.Message)
	if !isProto {
		return r, fmt.Errorf("grpctx: the request is a %T; a call with a key needs protocol buffers", in)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return r, fmt.Errorf("grpctx: hashing the request: %w", err)
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\n", fullMethod)
	h.Write(body)
	r.Key, r.Fingerprint = keys[0], h.Sum(nil)
	if config.Scope != nil {
		r.Scope = config.Scope(ctx)
	}
	return r, nil
}

// refusal is the status of a call whose key was refused.
func refusal(err error) error {
	switch {
	case errors.Is(err, idempotency.ErrRunning):
		return status.Error(codes.Aborted, "a call with this key is still running; send the call again later")
	case errors.Is(err, idempotency.ErrNotKept):
		return status.Error(codes.AlreadyExists, "the call was done before, and its answer was not stored")
	case errors.Is(err, idempotency.ErrOtherRequest):
		return status.Error(codes.InvalidArgument, "this key was used for another call; use a key once")
	default:
		return beginError{err}
	}
}

// begin begins the transaction of a call. k is not nil if the call has a key; a call that was done
// before has no transaction.
func (config *Config) begin(ctx context.Context, fullMethod string, in any) (txCtx context.Context, tx outbox.Transaction, k *keyed, err error) {
	var r idempotency.Request
	if config.Idempotency != nil {
		if r, err = config.Idempotency.request(ctx, fullMethod, in); err != nil {
			return nil, nil, nil, err
		}
	}
	if r.Key == "" {
		txCtx, tx, err = config.Transactor.Begin(ctx, config.TxOptions)
		if err != nil {
			err = beginError{err}
		}
		return txCtx, tx, nil, err
	}
	txCtx, attempt, err := config.Idempotency.Keys.Begin(ctx, config.Transactor, config.TxOptions, r)
	if err != nil {
		return nil, nil, nil, refusal(err)
	}
	k = &keyed{attempt: attempt}
	return txCtx, k, k, nil
}
