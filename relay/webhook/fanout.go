package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Bounds of a transaction that writes deliveries.
const (
	chunkRows  = 500
	chunkBytes = 4 << 20
)

// Body is the default body of the requests: as Standard Webhooks recommends, a JSON object with the
// event type, the time of the event, and the payload as "data". A payload that is not JSON is the body as
// it is.
func Body(env outbox.Envelope) (outbox.Payload, error) {
	if !env.Payload.IsJSON() {
		return env.Payload, nil
	}
	text, err := json.Marshal(struct {
		Type      outbox.EventType `json:"type"`
		Timestamp time.Time        `json:"timestamp"`
		Data      outbox.Payload   `json:"data"`
	}{env.EventType, env.OccurredAt.UTC(), env.Payload})
	if err != nil {
		return outbox.Payload{}, fmt.Errorf("making the body: %w", err)
	}
	return outbox.RawJSON(text), nil
}

// fanOut writes a delivery for each endpoint of an event. When it is repeated, it writes the deliveries
// that are missing: the id of a delivery follows from the event and the endpoint.
func (h *Hooks) fanOut(ctx context.Context, env outbox.Envelope) error {
	ids, err := h.cfg.Endpoints.For(ctx, env)
	if err != nil {
		return fmt.Errorf("webhook: asking for the endpoints of the event: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	body, err := h.cfg.Body(env)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	headers := maps.Clone(env.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers[headerID] = env.EventID
	size := min(chunkRows, max(1, chunkBytes/max(1, body.Len())))
	var chunk []outbox.Envelope
	for i, id := range ids {
		if id == "" || len([]rune(id)) > outbox.MaxAggregateIDLength {
			return fmt.Errorf("webhook: the id of an endpoint has %d characters; it must have 1 to %d", len([]rune(id)), outbox.MaxAggregateIDLength)
		}
		chunk = append(chunk, outbox.Envelope{
			EventID: deliveryID(env.EventID, id), EventType: Kind.EventType, AggregateType: Kind.AggregateType, AggregateID: id,
			TenantID: env.TenantID, Headers: headers, Payload: body,
		})
		if len(chunk) < size && i < len(ids)-1 {
			continue
		}
		if err := h.write(ctx, chunk); err != nil {
			err = fmt.Errorf("webhook: writing %d deliveries: %w", len(chunk), err)
			if errors.As(err, new(*outbox.FieldError)) { // such as a body that is too long
				return outbox.Dead(err)
			}
			return err
		}
		chunk = chunk[:0]
	}
	return nil
}

// write writes deliveries, as far as they are not there. An error names the deliveries that are there, so a
// repeated fan-out costs one or two transactions for each piece.
func (h *Hooks) write(ctx context.Context, deliveries []outbox.Envelope) error {
	for len(deliveries) > 0 {
		err := h.cfg.Write(ctx, deliveries)
		there := new(outbox.DuplicateEventError)
		if !errors.As(err, &there) {
			return err
		}
		has := map[string]bool{there.EventID: true}
		for _, id := range there.EventIDs {
			has[id] = true
		}
		missing := slices.DeleteFunc(slices.Clone(deliveries), func(d outbox.Envelope) bool { return has[d.EventID] })
		if len(missing) == len(deliveries) { // an event of the caller's, or of a hook of the writer
			return err
		}
		deliveries = missing
	}
	return nil
}

// deliveryID is the id of the delivery of an event to an endpoint.
func deliveryID(event, endpoint string) string {
	sum := sha256.Sum256([]byte(event + "\x00" + endpoint))
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20])
}
