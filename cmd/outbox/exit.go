package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitWarnings    = 4
	exitFailures    = 5
	exitInterrupted = 130
)

const exitCodes = `Exit codes:
  0    it worked
  1    it failed, or was not confirmed
  2    a flag or an argument is wrong
  3    there is no such event
  4    doctor found a warning
  5    doctor found a failure
  130  it was interrupted`

// usageError is a wrong flag or argument.
type usageError struct{ name, problem string }

func (e *usageError) Error() string { return e.name + " " + e.problem }

// exitError is an exit code without a text: the command has already printed everything.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report prints an error and returns the exit code.
func (a *app) report(err error) int {
	var done exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &done):
		return int(done)
	}
	code := exitCode(err)
	text := strings.TrimPrefix(err.Error(), "outbox: ")
	if code == exitInterrupted && !errors.Is(err, errInterrupted) {
		text = errInterrupted.Error()
	}
	if a.json {
		line, _ := json.Marshal(struct {
			Error    string `json:"error"`
			ExitCode int    `json:"exit_code"`
		}{text, code})
		_, _ = fmt.Fprintf(a.errOut, "%s\n", printableJSON(line))
		return code
	}
	_, _ = fmt.Fprintf(a.errOut, "outbox: %s\n", printableLines(text))
	if code == exitUsage {
		_, _ = fmt.Fprintln(a.errOut, "The flag --help lists what is possible.")
	}
	return code
}

func exitCode(err error) int {
	var usage *usageError
	var field *outbox.FieldError
	switch {
	case errors.As(err, &usage), errors.As(err, &field):
		return exitUsage
	case errors.Is(err, outbox.ErrNotFound):
		return exitNotFound
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		return exitFailed
	}
}

// isMissingTable reports whether a statement failed because the table does not exist.
func isMissingTable(err error) bool {
	return sqlerr.HasState(err, "42P01") || sqlerr.HasState(err, "3F000") || sqlerr.HasNumber(err, 1146, 1049) || strings.Contains(err.Error(), "no such table")
}
