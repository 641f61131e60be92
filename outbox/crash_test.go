package outbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The environment that makes this test binary a process to be killed.
const (
	victimDriver = "OUTBOX_TEST_VICTIM_DRIVER"
	victimDSN    = "OUTBOX_TEST_VICTIM_DSN"
	victimEvents = 20

	victimOfFigures = "OUTBOX_TEST_VICTIM_OF_FIGURES"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimDSN) != "" {
		victim()
	}
	if os.Getenv(holderDSN) != "" {
		holds()
	}
	if os.Getenv(victimOfFigures) != "" {
		fragile()
	}
	goleak.VerifyTestMain(m)
}

// victim writes events whose listener never returns, and waits for its end.
func victim() {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	db, err := sqltx.Open(os.Getenv(victimDriver), os.Getenv(victimDSN))
	check(err)
	store, err := sqlstore.Detect(ctx, db)
	check(err)
	check(store.CreateSchema(ctx, db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	check(ob.Register(outbox.On("", "Said", outbox.Handle(func(context.Context, outbox.Envelope) error { select {} }))))
	check(ob.Start(ctx))
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	for i := range victimEvents {
		check(a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.Write(ctx, tx, said(fmt.Sprint("e", i)))
			return err
		}))
	}
	tx, err := db.BeginTx(ctx, nil)
	check(err)
	_, err = a.Write(ctx, tx, said("never committed"))
	check(err)
	fmt.Println("written")
	select {}
}

func TestAKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	drivers := map[testdb.Kind]string{testdb.Postgres: "pgx", testdb.MySQL: "mysql", testdb.SQLite: "sqlite"}
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), victimDriver+"="+drivers[db.Kind], victimDSN+"="+db.DSN)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "written\n", line)
		require.NoError(t, child.Process.Kill())
		_ = child.Wait() // "signal: killed"

		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		var c calls
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.Handle(func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		}))))
		require.NoError(t, ob.Start(t.Context()))
		require.Eventually(t, func() bool { events, _ := c.total(); return events >= victimEvents }, 30*time.Second, 5*time.Millisecond)
		require.NoError(t, ob.Close(context.Background()))
		events, deliveries := c.total()
		require.Equal(t, victimEvents, events)
		require.Equal(t, victimEvents, deliveries)
		require.Zero(t, c.n["never committed"])
	})
}
