package readme_test

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/readme"
)

func TestReadmeShowsTheCodeThatCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "```go\n")
	for _, example := range []struct {
		file  string
		lines int
	}{{"service.go", 43}, {"example.go", 34}} {
		block, after, found := strings.Cut(rest, "```")
		require.True(t, found, "README.md has no Go block for %s", example.file)
		code, err := os.ReadFile(example.file)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(code), block), "README.md and %s differ: copy one to the other", example.file)
		require.LessOrEqual(t, strings.Count(block, "\n"), example.lines, "the example is to be read at a glance")
		_, rest, _ = strings.Cut(after, "```go\n")
	}
}

func openDatabase(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sqltx.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "readme.db")+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT, item TEXT)")
	require.NoError(t, err)
	return db
}

func TestReadmeExampleDelivers(t *testing.T) {
	require.NoError(t, readme.Serve(t.Context(), openDatabase(t)))
	require.Equal(t, "tea", <-readme.Mails)
}

func TestReadmeServiceDelivers(t *testing.T) {
	pool := openDatabase(t)
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}))
	require.NoError(t, err)
	var server *http.Server
	app := readme.NewApp(fx.Options(fx.Supply(pool, db), fx.Populate(&server), fx.NopLogger, fx.Decorate(withoutPort)))
	require.NoError(t, app.Start(t.Context()))
	answer := httptest.NewRecorder()
	server.Handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/mate", nil))
	require.Equal(t, http.StatusCreated, answer.Code, answer.Body)
	require.Equal(t, "mate", <-readme.Mails)
	require.NoError(t, app.Stop(t.Context()))
}

// withoutPort makes the server listen on a free port.
func withoutPort(s *http.Server) *http.Server {
	s.Addr = "127.0.0.1:0"
	return s
}
