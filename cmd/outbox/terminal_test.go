package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

const soon = 2 * time.Minute

func TestAnInterruptEndsAReplayAfterItsBatchAndCountsExactly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		const all = 6000
		s.dead(t, "x", all)
		cmd, out, errOut := command(t.Context(), s.DSN, "dead", "replay", "--all", "--yes", "--batch", "2")
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return s.count(t, outbox.StatusNew) > 0 }, soon, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s%s", out, errOut)
		n := s.count(t, outbox.StatusNew)
		require.Less(t, n, all)
		require.Contains(t, errOut.String(), fmt.Sprintf("interrupted after it replayed %d of %d dead letters; the others are still dead", n, all))
		require.Empty(t, out.String())
	})
}

func TestAnInterruptEndsABenchmarkThatDropsItsTable(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	tables := func() (n int) {
		require.NoError(t, s.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'outbox_bench%'").Scan(&n))
		return n
	}
	cmd, _, errOut := command(t.Context(), s.DSN, "bench", "--events", "1000000", "--yes")
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return tables() > 0 }, soon, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), errOut.String())
	require.Zero(t, tables())
}

func TestWatchingPrintsLinesUntilAnInterrupt(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	for _, args := range [][]string{{"stats", "--watch", "--interval", "100ms"}, {"stats", "--watch", "--interval", "100ms", "--json"}} {
		cmd, _, _ := command(t.Context(), s.DSN, args...)
		cmd.Stdout = nil
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var text strings.Builder
		buffer := make([]byte, 4096)
		for strings.Count(text.String(), "\n") < 3 {
			n, err := pipe.Read(buffer)
			require.NoError(t, err)
			text.Write(buffer[:n])
		}
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), "that is how watching ends")
		require.Equal(t, args[len(args)-1] != "--json", strings.Contains(text.String(), "OLDEST DUE"))
	}
}

func TestABrokenPipeEndsTheCommandSilently(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	for i := range 500 {
		s.insert(t, envelope(fmt.Sprintf("e%03d", i)))
	}
	cmd, _, errOut := command(t.Context(), s.DSN, "events", "list", "--limit", "500")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = write
	require.NoError(t, read.Close())
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	require.Error(t, cmd.Wait())
	require.Equal(t, syscall.SIGPIPE, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "as other commands end")
	require.Empty(t, errOut.String())
}

// onTerminal runs the program with a terminal of its own, types the input and returns what
// the terminal showed.
func onTerminal(t *testing.T, dsn, input string, args ...string) (shown string, code int) {
	t.Helper()
	terminal, line := terminalPair(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "OUTBOX_DSN="+dsn, "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // Ctrl-C is then a signal
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, line
	require.NoError(t, cmd.Start())
	require.NoError(t, line.Close())
	var text strings.Builder
	buffer := make([]byte, 4096)
	for typed := false; ; {
		n, err := terminal.Read(buffer)
		text.Write(buffer[:n])
		if err != nil { // the program has ended
			break
		}
		if !typed && strings.Contains(text.String(), "[y/N]") {
			typed = true
			_, err := terminal.WriteString(input)
			require.NoError(t, err)
		}
	}
	_ = cmd.Wait()
	return text.String(), cmd.ProcessState.ExitCode()
}

func TestATerminalIsAskedBeforeMuchIsChanged(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	s.dead(t, "x", 3)
	for _, no := range []string{"n\n", "\n", "yep\n"} {
		shown, code := onTerminal(t, s.DSN, no, "dead", "replay", "--all")
		require.Contains(t, shown, "Replay 3 dead letters? [y/N]")
		require.Contains(t, shown, "nothing was changed")
		require.Equal(t, 1, code)
	}
	shown, code := onTerminal(t, s.DSN, "\x03", "dead", "replay", "--all")
	require.Contains(t, shown, "interrupted, nothing was changed")
	require.Equal(t, 130, code)
	require.Equal(t, 3, s.count(t, outbox.StatusDead))
	shown, code = onTerminal(t, s.DSN, "", "dead", "replay", "d000000")
	require.Zero(t, code)
	require.NotContains(t, shown, "[y/N]", "one event is changed without a question")
	shown, code = onTerminal(t, s.DSN, "y\n", "dead", "replay", "--all")
	require.Zero(t, code, shown)
	require.Contains(t, shown, "replayed 2 dead letters")
	require.Zero(t, s.count(t, outbox.StatusDead))
}

func TestATerminalShowsProgress(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	s.dead(t, "x", 3000)
	shown, code := onTerminal(t, s.DSN, "", "dead", "replay", "--all", "--yes", "--batch", "5")
	require.Zero(t, code, shown)
	require.Contains(t, shown, "/3000")
	require.Contains(t, shown, "replayed 3000 dead letters")
	r := run(t, s.DSN, "dead", "replay", "--all", "--yes")
	require.NotContains(t, r.err, "%", "without a terminal there is no bar")
}

func TestWhatCouldSteerATerminalIsEscaped(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		const hostile = "a\x1b[2J\x07\r\u009b31m\u202eb\n\tc"
		env := envelope("e1")
		env.EventType, env.AggregateType, env.AggregateID, env.TenantID = hostile, hostile, hostile, hostile
		env.Headers = map[string]string{hostile: hostile}
		env.Payload = outbox.RawJSON([]byte("{\"k\":\"\u009b31m\u202e\U000e0001\"}"))
		s.insert(t, env)
		s.kill(t, hostile, "e1")
		require.NoError(t, s.store.Announce(t.Context(), s.DB, outbox.Node{Owner: hostile, Mode: hostile}, time.Minute))
		require.NoError(t, s.store.Pause(t.Context(), s.DB, outbox.Pause{Kind: outbox.EventKind{EventType: hostile, AggregateType: hostile}, Since: time.Now()}))
		value, err := json.Marshal(map[string]any{"k": []string{hostile, hostile}, "m": []any{map[string]any{"n": hostile, "o": 1, "t": time.Now().Add(time.Hour).UnixMicro()}}})
		require.NoError(t, err)
		_, err = s.store.SetShares(t.Context(), s.DB, outbox.EventKind{EventType: "T"}, "", outbox.Shares{Version: "v", Value: string(value)})
		require.NoError(t, err)
		value, err = json.Marshal(map[string]any{"id": hostile, "name": hostile, "listener": hostile, "event_types": []string{hostile}, "rate": 1, "state": hostile, "by": hostile, "reason": hostile})
		require.NoError(t, err)
		_, err = s.store.SetReplay(t.Context(), s.DB, "", outbox.ReplayRow{Name: "r", Version: "v", Value: string(value)}, nil)
		require.NoError(t, err)
		for _, args := range [][]string{
			{"events", "list"},
			{"events", "show", "e1", "--payload"},
			{"dead", "list"},
			{"dead", "show", "e1", "--payload"},
			{"dead", "groups"},
			{"nodes"},
			{"shares"},
			{"paused"},
			{"replay", "list"},
			{"stats"},
			{"doctor"},
			{"resume", "x" + hostile},
		} {
			for _, more := range [][]string{nil, {"--json"}} {
				r := run(t, s.DSN, append(args, more...)...)
				for _, bad := range []string{"\x1b", "\x07", "\r", "\u009b", "\u202e", "\U000e0001", "b\n\tc"} {
					require.NotContains(t, r.out+r.err, bad, "%v", args)
				}
			}
		}
		require.Contains(t, ok(t, s.DSN, "events", "list"), `a\x1b[2J\a\r\u009b31m\u202eb\n\tc`)
		require.Equal(t, hostile, answer(t, s.DSN, "events", "show", "e1")["last_error"], "JSON keeps the value")
	})
}

// A batch waits for a lock for longer than the command waits for the batch.
func TestAnInterruptReportsABatchWhoseEndIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		s := open(t, db)
		s.dead(t, "x", 20)
		lock, err := s.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = lock.ExecContext(t.Context(), "UPDATE outbox_event SET attempts = 1")
		require.NoError(t, err)
		cmd, out, errOut := command(t.Context(), s.DSN, "dead", "delete", "--all", "--yes", "--batch", "7", "--json")
		require.NoError(t, cmd.Start())
		waiting := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'UPDATE%locked_by%'"
		if s.Kind == testdb.Postgres {
			var pid int
			require.NoError(t, lock.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
			waiting = fmt.Sprintf("SELECT COUNT(*) FROM pg_stat_activity WHERE %d = ANY(pg_blocking_pids(pid))", pid)
		}
		require.Eventually(t, func() bool {
			n := 0
			err := s.QueryRowContext(t.Context(), waiting).Scan(&n)
			// MySQL cannot read the list while a session of another test runs a statement with an emoji.
			return err == nil && n > 0
		}, soon, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s%s", out, errOut)
		require.NoError(t, lock.Rollback())
		if s.Kind == testdb.Postgres {
			require.NotContains(t, out.String(), "in_doubt")
			require.NotContains(t, out.String()+errOut.String(), "restore")
			require.Contains(t, errOut.String(), "interrupted after it deleted 0 of 20 dead letters; the others are still there")
			require.Equal(t, 20, s.count(t, outbox.StatusDead), "the server cancelled the statement")
			return
		}
		require.Contains(t, out.String(), `"in_doubt": 7`)
		require.Regexp(t, `"deletion_id": "\w{26}"`, out.String())
		require.Contains(t, errOut.String(), "To undo the deletion: outbox dead restore ")
		require.Contains(t, errOut.String(), "so up to 7 more may be deleted")
	})
}
