package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// stopPatience is how long the batch that runs may take after the first signal.
const stopPatience = 5 * time.Second

// work is a change in batches. When the context of the command ends, the batch that runs is
// finished first, so that the number of changed events is exact. A batch that takes longer than
// stopPatience is cancelled.
type work struct {
	show         func(done int)
	cancel       context.CancelFunc
	stopped, cut atomic.Bool
}

// gently returns the context of the work.
func gently(ctx context.Context, show func(done int)) (context.Context, *work) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &work{show: show, cancel: cancel}
	context.AfterFunc(ctx, func() {
		w.stopped.Store(true)
		time.AfterFunc(stopPatience, func() {
			w.cut.Store(true)
			cancel()
		})
	})
	return working, w
}

// progress is called after each batch.
func (w *work) progress(done int) {
	w.show(done)
	if w.stopped.Load() {
		w.cancel()
	}
}

// inDoubt reports whether the cancelled batch may have been carried out. PostgreSQL confirms with
// SQLSTATE 57014 that the batch was not carried out; MySQL goes on with a statement whose
// connection is gone.
func (w *work) inDoubt(err error) bool { return w.cut.Load() && !sqlerr.HasState(err, "57014") }

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks before more than one event is changed.
func (a *app) confirm(ctx context.Context, b *bulk, n int64) error {
	if n <= 1 || b.yes {
		return nil
	}
	return a.ask(ctx, fmt.Sprintf("%s %s %s", b.verb, b.count(n), b.what))
}

// ask asks whether to do something.
func (a *app) ask(ctx context.Context, what string) error {
	if !isTerminal(a.in) {
		return &usageError{"--yes", "is needed to " + what + ", because standard input is no terminal; --dry-run changes nothing"}
	}
	_, _ = fmt.Fprintf(a.errOut, "%s%s? [y/N] ", strings.ToUpper(what[:1]), what[1:])
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w, nothing was changed", errInterrupted)
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
		return errors.New("not confirmed, so nothing was changed")
	}
}

// bar shows the progress of long work, if standard error is a terminal.
type bar struct{ shown *progressbar.ProgressBar }

func (a *app) progressBar(what string, total int64) *bar {
	if !isTerminal(a.errOut) {
		return &bar{}
	}
	return &bar{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.errOut), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
}

func (b *bar) set(done int) {
	if b.shown != nil {
		_ = b.shown.Set(done)
	}
}

func (b *bar) end() {
	if b.shown != nil {
		_ = b.shown.Finish()
	}
}
