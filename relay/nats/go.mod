module github.com/outboxkit/outbox-go/relay/nats

go 1.25.0

require (
	github.com/nats-io/nats.go v1.44.0
	github.com/outboxkit/outbox-go v0.0.0-00010101000000-000000000000
)

require (
	github.com/klauspost/compress v1.18.0 // indirect
	github.com/nats-io/nkeys v0.4.11 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.37.0 // indirect
	golang.org/x/sys v0.34.0 // indirect
)

replace github.com/outboxkit/outbox-go => ../../
