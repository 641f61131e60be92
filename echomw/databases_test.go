package echomw_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// adapters make what an app needs of each adapter.
var adapters = map[string]func(t *testing.T, db *testdb.DB, writer *outbox.Writer) (outbox.Transactor, func(ctx context.Context, query string) error){
	"sqltx": func(t *testing.T, db *testdb.DB, writer *outbox.Writer) (outbox.Transactor, func(ctx context.Context, query string) error) {
		a := adaptertest.Adapter(t, db.DB, writer)
		return a, execSQL(a)
	},
	"bun": func(t *testing.T, db *testdb.DB, writer *outbox.Writer) (outbox.Transactor, func(ctx context.Context, query string) error) {
		dialect := map[testdb.Kind]func() schema.Dialect{
			testdb.Postgres: func() schema.Dialect { return pgdialect.New() },
			testdb.MySQL:    func() schema.Dialect { return mysqldialect.New() },
			testdb.SQLite:   func() schema.Dialect { return sqlitedialect.New() },
		}[db.Kind]()
		a, err := outboxbun.New(bun.NewDB(db.DB, dialect), writer)
		require.NoError(t, err)
		return a, func(ctx context.Context, query string) error {
			tx, ok := a.TxFrom(ctx)
			if !ok {
				return outbox.ErrNoTransaction
			}
			_, err := tx.ExecContext(ctx, query)
			return err
		}
	},
	"gorm": func(t *testing.T, db *testdb.DB, writer *outbox.Writer) (outbox.Transactor, func(ctx context.Context, query string) error) {
		dialector := map[testdb.Kind]gorm.Dialector{
			testdb.Postgres: postgres.New(postgres.Config{Conn: db.DB}),
			testdb.MySQL:    mysql.New(mysql.Config{Conn: db.DB, SkipInitializeWithVersion: true}),
			testdb.SQLite:   sqlite.New(sqlite.Config{Conn: db.DB}),
		}[db.Kind]
		handle, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
		require.NoError(t, err)
		a, err := outboxgorm.New(handle, writer)
		require.NoError(t, err)
		return a, func(ctx context.Context, query string) error {
			tx, ok := a.TxFrom(ctx)
			if !ok {
				return outbox.ErrNoTransaction
			}
			return tx.Exec(query).Error
		}
	},
}

// each runs fn for each adapter on each target.
func each(t *testing.T, targets []testdb.Target, fn func(t *testing.T, a *app)) {
	t.Helper()
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, targets, func(t *testing.T, db *testdb.DB) {
				writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
				transactor, exec := adapter(t, db, writer)
				fn(t, newAppOn(t, &app{db: db.DB, writer: writer, record: record, transactor: transactor, exec: exec}))
			})
		})
	}
}

func TestTheResponseTellsWhatTheTransactionDid(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, a *app) {
		a.transaction(outside(recovery()))
		handlers := map[string]echo.HandlerFunc{
			"/created": func(c echo.Context) error {
				if err := a.exec(c.Request().Context(), "INSERT INTO written (id) VALUES ('by the handler')"); err != nil {
					return err
				}
				require.Empty(t, a.record.Outcomes(), "it is not over yet")
				return c.JSON(http.StatusCreated, echo.Map{"ok": true})
			},
			"/error":    func(echo.Context) error { return errTest },
			"/teapot":   func(echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "tea") },
			"/conflict": func(c echo.Context) error { return c.JSON(http.StatusConflict, echo.Map{"conflict": true}) },
			"/panic":    func(echo.Context) error { panic("boom") },
			"/late":     func(c echo.Context) error { _ = c.JSON(http.StatusOK, echo.Map{"ok": true}); return errTest },
		}
		for path, handler := range handlers {
			a.POST(path, a.writing(handler))
		}
		a.wantAnswer(a.post("/created"), 201, `{"ok":true}`)
		a.want(2, "commit")
		a.wantAnswer(a.post("/error"), 500, `{"error":"internal"}`)
		a.wantAnswer(a.post("/teapot"), 418, `{"error":"tea"}`)
		a.wantAnswer(a.post("/conflict"), 409, `{"conflict":true}`)
		a.wantAnswer(a.post("/panic"), 500, `{"error":"internal"}`)
		a.wantAnswer(a.post("/late"), 500, `{"error":"internal"}`)
		a.want(2, "commit", "rollback", "rollback", "rollback", "rollback", "rollback")
	})
}

func TestAFailedCommitIsNeverASuccess(t *testing.T) {
	t.Parallel()
	var targets []testdb.Target
	for _, target := range adaptertest.Main() {
		if target.Kind != testdb.MySQL { // it checks its constraints at once
			targets = append(targets, target)
		}
	}
	each(t, targets, func(t *testing.T, a *app) {
		a.withDeferredConstraint()
		a.transaction(outside(recovery(), logging()))
		a.POST("/", a.writing(func(c echo.Context) error {
			if err := a.failingCommit(c); err != nil {
				return err
			}
			c.Response().Header().Set("Location", "/orders/1")
			return c.JSON(http.StatusCreated, echo.Map{"ok": true})
		}))
		got := a.post("/")
		a.wantAnswer(got, 500, `{"error":"not committed"}`)
		require.Empty(t, got.Header.Get("Location"))
		a.want(0, "rollback")
	})
}

func TestALostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := []testdb.Target{adaptertest.Main()[0], adaptertest.Main()[1]}
			testdb.Each(t, servers, func(t *testing.T, direct *testdb.DB) {
				adaptertest.Exec(t, direct.DB, "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
				proxied, cuts := direct.CutCommits(t)
				writer, record := adaptertest.WriterWithoutTable(t, proxied.DB, string(direct.Kind))
				transactor, exec := adapter(t, proxied, writer)
				a := newAppOn(t, &app{db: direct.DB, writer: writer, record: record, transactor: transactor, exec: exec})
				a.transaction(outside(recovery()))
				called := false
				a.POST("/", a.writing(func(c echo.Context) error {
					require.NoError(t, echomw.OnCommit(c, func(context.Context) { called = true }))
					return c.JSON(http.StatusCreated, echo.Map{"ok": true})
				}))
				a.wantAnswer(a.post("/"), 500, `{"error":"unknown"}`)
				require.Equal(t, int32(1), cuts.Load())
				a.want(1, "unknown")
				require.False(t, called)
			})
		})
	}
}

func TestAClientThatIsGoneCommitsNothing(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, a *app) {
		a.transaction(nil)
		arrived, over := make(chan struct{}), make(chan error, 1)
		a.POST("/", a.writing(func(c echo.Context) error {
			close(arrived)
			<-c.Request().Context().Done()
			err := c.JSON(http.StatusCreated, echo.Map{"ok": true}) // it ignores the cancellation
			over <- err
			return err
		}))
		a.start()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.server.URL, nil)
		require.NoError(t, err)
		response, err := a.client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, <-over)
		require.Eventually(t, func() bool { return len(a.record.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
		a.want(0, "rollback")
	})
}

func TestConcurrentRequestsHaveTheirOwnTransactions(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, a *app) {
		a.transaction(outside(recovery(), logging()))
		a.POST("/:fate", a.writing(func(c echo.Context) error {
			switch c.Param("fate") {
			case "panic":
				_ = c.String(http.StatusOK, "good")
				panic("boom")
			case "error":
				return errTest
			}
			return c.String(http.StatusOK, "good")
		}))
		a.start()
		const rounds = 8
		fates := map[string]int{"good": 200, "panic": 500, "error": 500}
		results := make(chan bool)
		for fate, status := range fates {
			for range rounds {
				go func() {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.server.URL+"/"+fate, nil)
					if err != nil {
						results <- false
						return
					}
					response, err := a.client.Do(request)
					if err == nil {
						err = response.Body.Close()
					}
					results <- err == nil && response.StatusCode == status
				}()
			}
		}
		for range rounds * len(fates) {
			require.True(t, <-results)
		}
		require.Equal(t, rounds, adaptertest.Written(t, a.db))
	})
}
