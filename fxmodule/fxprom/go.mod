module github.com/outboxkit/outbox-go/fxmodule/fxprom

go 1.25.0

require (
	github.com/outboxkit/outbox-go v0.0.0-00010101000000-000000000000
	github.com/outboxkit/outbox-go/adapters/prometheus v0.0.0-00010101000000-000000000000
	github.com/prometheus/client_golang v1.19.1
	github.com/stretchr/testify v1.10.0
	go.uber.org/fx v1.21.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/prometheus/client_model v0.6.1 // indirect
	github.com/prometheus/common v0.53.0 // indirect
	github.com/prometheus/procfs v0.12.0 // indirect
	go.uber.org/dig v1.17.1 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.26.0 // indirect
	golang.org/x/sys v0.34.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace (
	github.com/outboxkit/outbox-go => ../../
	github.com/outboxkit/outbox-go/adapters/prometheus => ../../adapters/prometheus
)
