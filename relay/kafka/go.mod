module github.com/outboxkit/outbox-go/relay/kafka

go 1.25.0

require (
	github.com/outboxkit/outbox-go v0.0.0-00010101000000-000000000000
	github.com/twmb/franz-go v1.18.0
)

require (
	github.com/klauspost/compress v1.17.8 // indirect
	github.com/pierrec/lz4/v4 v4.1.21 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.9.0 // indirect
	golang.org/x/crypto v0.32.0 // indirect
)

replace github.com/outboxkit/outbox-go => ../../
