package faultrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/outboxkit/outbox-go/proof/checker"
)

// CrashRun is a run of a process that crashes, and of the processes that follow it.
type CrashRun struct {
	// Hit is false when a process did not come to the process's point.
	Hit     bool
	History checker.History
	// Dead are the processes that died, and Ended the events that were DONE or DEAD when the last
	// of these processes died.
	Dead  []string
	Ended map[string]bool
}

// NewCrashRun makes the run of spec in a folder. The tables exist and are empty. The run ends when
// everything is delivered.
func NewCrashRun(ctx context.Context, program, dir string, db *sql.DB, spec Spec) (*CrashRun, error) {
	run, err := NewRun(program, dir)
	if err != nil {
		return nil, err
	}
	defer run.End()
	c := &crashRun{Run: run, db: db, spec: spec}
	if err := c.crashes(ctx, *spec.Crash); err != nil {
		return nil, err
	}
	c.result.History, err = run.History(ctx, db, spec.Promise())
	return &c.result, err
}

// names are the names of the processes of a run, in order.
var names = []string{firstProcess, "b", "c", "d"}

type crashRun struct {
	*Run
	db     *sql.DB
	spec   Spec
	began  int // processes
	result CrashRun
}

// crashes runs a process that crashes, the processes that crash after it, and the processes that
// deliver the remaining events.
func (c *crashRun) crashes(ctx context.Context, crash Crash) error {
	process := names[c.began]
	dead, err := c.crash(ctx, crash)
	if err != nil {
		return err
	}
	c.result.Hit = c.exists(process + hitFile)
	if !dead {
		return nil
	}
	c.result.Dead = append(c.result.Dead, process)
	if c.result.Ended, err = c.rowsEnded(ctx); err != nil {
		return err
	}
	if err := c.passTime(ctx); err != nil {
		return err
	}
	if crash.Then != nil {
		return c.crashes(ctx, *crash.Then)
	}
	return c.follow(ctx, crash.Fault == DieAndExecuteLate)
}

func (c *crashRun) exists(name string) bool {
	_, err := os.Stat(filepath.Join(c.Dir, name))
	return err == nil
}

func (c *crashRun) start(crash Crash) (*Process, error) {
	spec := c.spec
	spec.Process, spec.Crash = names[c.began], &crash
	if crash.Lease > 0 {
		spec.Lease = crash.Lease
	}
	c.began++
	return c.Start(spec)
}

var errDied = errors.New("it died")

// crash runs a process until it is dead, or until everything is delivered.
func (c *crashRun) crash(ctx context.Context, crash Crash) (dead bool, err error) {
	p, err := c.start(crash)
	if err != nil {
		return false, err
	}
	isDead := func() bool {
		return isOver(p.ended) || crash.Fault == DieAndExecuteLate && c.exists(p.Spec.Process+hitFile)
	}
	if err := until(ctx, func() bool { return isOver(p.written) || isDead() }); err != nil {
		return false, fmt.Errorf("%w: process %s neither wrote nor ended", err, p.Spec.Process)
	}
	if !isDead() && c.exists(latePending) {
		err = c.executed(ctx)
	}
	if err = errors.Join(err, c.resume(ctx)); err == nil {
		err = c.delivered(ctx, isDead)
	}
	switch {
	case err != nil:
	case isDead():
		err = errDied
	default:
		if err = p.Terminate(ctx); err == nil {
			return false, nil
		}
	}
	if isDead() && c.exists(p.Spec.Process+hitFile) {
		return true, nil
	}
	return false, fmt.Errorf("process %s failed, or ended by itself: %w: see %s.stderr", p.Spec.Process, err, filepath.Join(c.Dir, p.Spec.Process))
}

// delivered waits until nothing is pending, or the process is dead.
func (c *crashRun) delivered(ctx context.Context, isDead func() bool) error {
	var pending error
	err := until(ctx, func() bool {
		pending = c.pending(ctx)
		return pending == nil || isDead()
	})
	if err != nil {
		return errors.Join(err, pending)
	}
	return nil
}

func (c *crashRun) pending(ctx context.Context) error {
	var n int
	err := c.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)").Scan(&n)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d events are pending", n)
	}
	return err
}

// executed waits for the statement that is executed late.
func (c *crashRun) executed(ctx context.Context) error {
	if err := until(ctx, func() bool { return c.exists(lateDone) }); err != nil {
		return fmt.Errorf("%w: the late statement was not executed", err)
	}
	return nil
}

// follow runs processes that deliver the remaining events. A statement that is executed late may
// leave rows, and leases that no process knows: another process delivers these rows.
func (c *crashRun) follow(ctx context.Context, late bool) error {
	if late {
		if err := errors.Join(c.deliver(ctx, c.executed), c.passTime(ctx)); err != nil {
			return err
		}
	}
	return c.deliver(ctx, func(ctx context.Context) error {
		return c.delivered(ctx, func() bool { return false })
	})
}

// deliver runs a process as long as wait waits.
func (c *crashRun) deliver(ctx context.Context, wait func(context.Context) error) error {
	p, err := c.start(Crash{Follows: true})
	if err != nil {
		return err
	}
	return errors.Join(p.Ready(ctx), p.Written(ctx), wait(ctx), p.Terminate(ctx))
}

func (c *crashRun) rowsEnded(ctx context.Context) (map[string]bool, error) {
	ended := map[string]bool{}
	err := each(ctx, c.db, "SELECT event_id FROM outbox_event WHERE status IN (1, 3)", func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		ended[id] = true
		return err
	})
	return ended, err
}

// passTime expires the leases and the ranges of a dead process. An operator resumes the kinds that
// the process has paused.
func (c *crashRun) passTime(ctx context.Context) error {
	past := "'2000-01-01 00:00:00'"
	if c.spec.Driver == "sqlite" {
		past = "1000000"
	}
	for _, query := range []string{
		"UPDATE outbox_event SET locked_at = " + past + " WHERE locked_at IS NOT NULL",
		"UPDATE outbox_event_control SET expires_at = " + past + " WHERE expires_at IS NOT NULL",
	} {
		if _, err := c.db.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	var ranges sql.NullString
	err := c.db.QueryRowContext(ctx, "SELECT value FROM outbox_event_control WHERE kind = 'ranges'").Scan(&ranges)
	if err == nil && ranges.Valid {
		_, err = c.db.ExecContext(ctx, "UPDATE outbox_event_control SET value = '"+untils.ReplaceAllString(ranges.String, `"t":1000000`)+"' WHERE kind = 'ranges'")
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return c.resume(ctx)
}

// untils are the ends of the ranges in the control table.
var untils = regexp.MustCompile(`"t":\d+`)

func (c *crashRun) resume(ctx context.Context) error {
	_, err := c.db.ExecContext(ctx, "DELETE FROM outbox_event_control WHERE kind IN ('pause', 'pause-key')")
	return err
}

func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func until(ctx context.Context, condition func() bool) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
