module github.com/outboxkit/outbox-go/relay/kafka

go 1.25.0

require (
	github.com/outboxkit/outbox-go v0.0.0-00010101000000-000000000000
	github.com/twmb/franz-go v1.20.1
)

require (
	github.com/klauspost/compress v1.18.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.22 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.12.0 // indirect
	golang.org/x/crypto v0.43.0 // indirect
)

replace github.com/outboxkit/outbox-go => ../../
