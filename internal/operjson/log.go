package operjson

import "github.com/outboxkit/outbox-go/outbox"

// LogLag is an [outbox.LogLag] in JSON.
type LogLag struct {
	Behind int64 `json:"behind_bytes"`
	Kept   int64 `json:"kept_bytes"`
	Left   int64 `json:"left_bytes"`
}

// LogLagOf is the JSON of a lag; nil stays nil.
func LogLagOf(lag *outbox.LogLag) *LogLag { return (*LogLag)(lag) }
