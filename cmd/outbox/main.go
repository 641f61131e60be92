// Outbox looks into an outbox table and steers the delivery of its events from the command line:
//
//	go install github.com/outboxkit/outbox-go/cmd/outbox@latest
//	export OUTBOX_DSN=postgres://user:password@host/database
//	outbox doctor
//
// The command works whether or not a process delivers, because it only uses the table. The page
// docs/reference/command-line.md shows each subcommand.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

// run returns the exit code. The first signal ends the command at a safe point, the second signal
// ends it at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	a := &app{in: os.Stdin, out: os.Stdout, errOut: os.Stderr}
	return a.report(a.rootCommand().ExecuteContext(ctx))
}
