package outboxconf_test

import (
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

func Example() {
	dir, err := os.MkdirTemp("", "outboxconf")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "service.yaml")
	if err := os.WriteFile(path, []byte("outbox:\n  mode: MULTI_NODE\n  poller:\n    interval: PT1S\n"), 0o600); err != nil {
		fmt.Println(err)
	}

	load := func() (outboxfx.Config, error) {
		return outboxconf.Load(path, outboxconf.Section("outbox"), outboxconf.Environ([]string{"OUTBOX_POLLER_INTERVAL=2s"}))
	}
	app := fx.New(
		fx.NopLogger,
		fx.Provide(func() outboxfx.Config { return outboxfx.Config{} }), // in a service: outboxfx.Module
		fx.Decorate(load),
		fx.Invoke(func(c outboxfx.Config) { fmt.Println(c.Mode, c.Poll.Interval) }),
	)
	if err := app.Err(); err != nil {
		fmt.Println(err)
	}
	// Output: multi-node 2s
}
