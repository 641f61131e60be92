package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// deadCursor returns the value of --after that goes on behind a dead letter. The value is encoded,
// because a shell may run characters of an event id.
func deadCursor(last *outbox.DeadLetter) string {
	return base64.RawURLEncoding.EncodeToString([]byte(last.DiedAt.UTC().Format(time.RFC3339Nano) + "," + last.EventID))
}

// parseDeadCursor returns the place behind which a listing goes on.
func parseDeadCursor(text string) (last outbox.DeadLetter, err error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	died, id, _ := strings.Cut(string(decoded), ",")
	at, timeErr := time.Parse(time.RFC3339Nano, died)
	if err != nil || timeErr != nil || at.Year() < 1000 || id == "" || checkText("--after", id, outbox.MaxEventIDLength) != nil {
		return last, wrongCursor(text)
	}
	last.EventID, last.DiedAt = id, at.UTC()
	return last, nil
}

// wrongCursor reports an --after that no listing printed.
func wrongCursor(text string) error {
	return &usageError{"--after", fmt.Sprintf("is a text of %d bytes; it must be what an earlier listing printed", len(text))}
}
