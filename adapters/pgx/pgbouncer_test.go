package outboxpgx_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// Many clients share few connections of the server, which change hands after each
// transaction: an event still takes the hot path, once.
func TestPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, pgBouncer(t, testdb.Open(t, testdb.Main()[0])), follow, func(config *pgxpool.Config) {
				config.ConnConfig.DefaultQueryExecMode = mode
			})
			_, a, arrived := delivering(t, pool, outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}})
			const clients, each = 6, 10
			var mu sync.Mutex
			var ids []string
			var wg sync.WaitGroup
			for client := range clients {
				wg.Go(func() {
					for i := range each {
						id, err := write(t.Context(), pool, func(tx pgx.Tx) (id string, err error) {
							if (client+i)%2 == 0 {
								return a.Write(t.Context(), tx, order)
							}
							batch := &pgx.Batch{}
							if id, err = a.Queue(t.Context(), batch, order); err == nil {
								err = tx.SendBatch(t.Context(), batch).Close()
							}
							return id, err
						})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						ids = append(ids, id)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Len(t, ids, clients*each)
			var got []string
			for range ids {
				select {
				case id := <-arrived:
					got = append(got, id)
				case <-time.After(20 * time.Second):
					t.Fatalf("%d of %d events arrived", len(got), len(ids))
				}
			}
			require.ElementsMatch(t, ids, got)
			require.Empty(t, arrived)
		})
	}
}

func write(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) (string, error)) (id string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		id, err = fn(tx)
		return err
	})
	return id, err
}

// pgBouncer starts a PgBouncer on the test's schema, with three connections, and
// returns its DSN.
func pgBouncer(t *testing.T, db *testdb.DB) (dsn string) {
	t.Helper()
	program := pgBouncerProgram(t)
	server, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())

	config := filepath.Join(t.TempDir(), "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
shop = host=%s port=%d dbname=%s user=%s %s connect_query='SET search_path TO %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
`, server.Host, server.Port, server.Database, server.User, password(server.Password), server.RuntimeParams["search_path"], port)
	if os.Geteuid() == 0 { // it refuses to run as root
		text += "user = nobody\n"
	}
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	process := exec.Command(program, config)
	var log bytes.Buffer
	process.Stderr = &log
	require.NoError(t, process.Start())
	ended := make(chan struct{})
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	dsn = fmt.Sprintf("postgres://%s@127.0.0.1:%d/shop?sslmode=disable", server.User, port)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if err = testdb.Ping("pgx", dsn+"&default_query_exec_mode=exec"); err == nil {
			return dsn
		}
		select {
		case <-ended:
			t.Fatalf("PgBouncer ended: %s", log.String())
		case <-time.After(20 * time.Millisecond):
			require.True(t, time.Now().Before(deadline), "PgBouncer does not answer: %v", err)
		}
	}
}

func password(text string) string {
	if text == "" {
		return ""
	}
	return "password='" + strings.ReplaceAll(text, "'", "''") + "'"
}

// pgBouncerProgram finds PgBouncer, or skips the test with the reason.
func pgBouncerProgram(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path
	}
	path, err := filepath.Abs("../../.bin/pgbouncer")
	require.NoError(t, err)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	const why = "pgbouncer is not installed: make pgbouncer fetches it"
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}
