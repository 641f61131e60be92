package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// interrupted is the cause of a context ended by a signal.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted: " + i.signal.String() }

// status is a shell's exit status for a command ended by the signal.
func (i interrupted) status() int { return 128 + int(i.signal) }

// untilSignal returns a context that ends with the first signal; later signals are ignored until
// release, so that servers are always stopped.
func untilSignal(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case s := <-signals:
			cancel(interrupted{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// signalOf is the signal that ended the context, or SIGTERM.
func signalOf(ctx context.Context) interrupted {
	var i interrupted
	if errors.As(context.Cause(ctx), &i) {
		return i
	}
	return interrupted{syscall.SIGTERM}
}

// runCommand runs the command and returns the exit status, as a shell does. When the context ends,
// the command gets the same signal and ten seconds. A terminal signals all of its processes itself;
// without a terminal, the command has a separate process group, because go test alone would die and
// leave the tests running.
func runCommand(ctx context.Context, command []string) int {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	group := !hasTerminal()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
	cmd.Cancel = func() error {
		err := syscall.Kill(target(cmd.Process.Pid, group), signalOf(ctx).signal)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		if group && cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the rest of the group
		}
		return signalOf(ctx).status()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return interrupted{status.Signal()}.status()
		}
		return exit.ExitCode()
	case err != nil:
		say("%v", err)
		return 1
	}
	return 0
}

func target(pid int, group bool) int {
	if group {
		return -pid
	}
	return pid
}

func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	return tty.Close() == nil
}
