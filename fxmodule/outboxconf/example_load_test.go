package outboxconf_test

import (
	"fmt"

	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

// Without a file, variables are enough.
func ExampleLoad() {
	config, err := outboxconf.Load("", outboxconf.Environ([]string{
		"OUTBOX_MODE=multi-node",
		"OUTBOX_DISPATCHER_WORKER_COUNT=32",
		"OUTBOX_POLLER_INTERVAL=1s",
	}))
	fmt.Println(config.Mode, config.Dispatch.Workers, config.Poll.Interval, err)
	// Output:
	// multi-node 32 1s <nil>
}

// A mistake names its key and the place.
func ExampleEnviron() {
	_, err := outboxconf.Load("", outboxconf.Environ([]string{"OUTBOX_DISPATCHER_WORKER_COUNT=many"}))
	fmt.Println(err)
	// Output:
	// outboxconf: the configuration is wrong:
	// dispatcher.worker-count (OUTBOX_DISPATCHER_WORKER_COUNT) is "many"; it must be a whole number
}

// The variables of a named outbox have its name.
func ExampleNamed() {
	config, err := outboxconf.Load("", outboxconf.Named("orders"), outboxconf.Environ([]string{
		"OUTBOX_ORDERS_MODE=ordered-by-key",
	}))
	fmt.Println(config.Mode, err)
	// Output:
	// ordered-by-key <nil>
}
