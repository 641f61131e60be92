package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// program is the built command.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "outbox-command")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		program = filepath.Join(dir, "outbox")
		if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			panic(fmt.Sprintf("building the command: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

// result is what a run of the command did.
type result struct {
	code     int
	out, err string
}

// command is a run of the program that has not started.
func command(ctx context.Context, dsn string, args ...string) (cmd *exec.Cmd, out, errOut *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, program, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OUTBOX_") && !strings.HasPrefix(v, "PG") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if dsn != "" {
		cmd.Env = append(cmd.Env, "OUTBOX_DSN="+dsn)
	}
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, errOut
	return cmd, out, errOut
}

// run runs the program without a terminal.
func run(t *testing.T, dsn string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd, out, errOut := command(ctx, dsn, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// ok runs the program, which must work, and returns its output.
func ok(t *testing.T, dsn string, args ...string) string {
	t.Helper()
	r := run(t, dsn, args...)
	require.Zero(t, r.code, "%v: %s%s", args, r.out, r.err)
	return r.out
}

// answer runs the program with --json and reads its answer.
func answer(t *testing.T, dsn string, args ...string) (v map[string]any) {
	t.Helper()
	out := ok(t, dsn, append(args, "--json")...)
	require.NoError(t, json.Unmarshal([]byte(out), &v), out)
	return v
}

// fails runs the program, which must end with the code, and returns its error.
func fails(t *testing.T, code int, dsn string, args ...string) string {
	t.Helper()
	r := run(t, dsn, args...)
	require.Equal(t, code, r.code, "%v: %s%s", args, r.out, r.err)
	require.NotContains(t, r.err, "panic", "%v", args)
	return r.err
}

// shop is a database with a table, and what fills it.
type shop struct {
	*testdb.DB
	store *sqlstore.Store
}

// open creates the table with the command.
func open(t *testing.T, db *testdb.DB, flags ...string) *shop {
	t.Helper()
	ok(t, db.DSN, append([]string{"schema", "create"}, flags...)...)
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	return &shop{db, store}
}

// each runs fn on each kind of database.
func each(t *testing.T, fn func(t *testing.T, s *shop)) {
	t.Helper()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) { fn(t, open(t, db)) })
}

func envelope(id string) outbox.Envelope {
	at := time.Now().UTC().Add(-time.Minute).Truncate(time.Microsecond)
	return outbox.Envelope{
		EventID: id, EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-" + id, TenantID: "t1",
		Headers: map[string]string{"trace": "abc"}, Payload: outbox.RawJSON([]byte(`{"item":"tea"}`)), OccurredAt: at, AvailableAt: at,
	}
}

func (s *shop) insert(t *testing.T, envs ...outbox.Envelope) {
	t.Helper()
	for len(envs) > 0 {
		batch := envs[:min(len(envs), 500)]
		envs = envs[len(batch):]
		tx, err := s.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, s.store.Insert(t.Context(), tx, batch, "", time.Now()))
		require.NoError(t, tx.Commit())
	}
}

// kill makes events dead.
func (s *shop) kill(t *testing.T, reason string, ids ...string) {
	t.Helper()
	var marks []outbox.Mark
	for _, id := range ids {
		marks = append(marks, outbox.Mark{EventID: id, Error: reason, Attempts: 10})
	}
	for len(marks) > 0 {
		batch := marks[:min(len(marks), 500)]
		marks = marks[len(batch):]
		_, err := s.store.Mark(t.Context(), s.DB, outbox.OutcomeDead, batch)
		require.NoError(t, err)
	}
}

// dead writes n dead events.
func (s *shop) dead(t *testing.T, reason string, n int) (ids []string) {
	t.Helper()
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = envelope(fmt.Sprintf("d%06d", i))
		ids = append(ids, envs[i].EventID)
	}
	s.insert(t, envs...)
	s.kill(t, reason, ids...)
	return ids
}

// count counts the rows of a status.
func (s *shop) count(t *testing.T, status outbox.Status) (n int) {
	t.Helper()
	require.NoError(t, s.QueryRowContext(t.Context(), fmt.Sprintf("SELECT COUNT(*) FROM outbox_event WHERE status = %d", int(status))).Scan(&n))
	return n
}
