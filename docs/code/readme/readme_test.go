// Package readme_test runs the examples of README.md.
package readme_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	serviceLines = 40  // with the imports, without blank lines
	readmeLines  = 170 // a reader knows in a minute whether the library is for them
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestTheExampleOfTheReadmeIsTheOneThatRuns(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)\n```go\n(.*?)```").FindAllStringSubmatch(read(t, "../../../README.md"), -1)
	require.Len(t, blocks, 1)
	require.Equal(t, read(t, "service/main.go"), blocks[0][1], "README.md and service/main.go differ: copy one to the other")
	require.LessOrEqual(t, lines(blocks[0][1]), serviceLines)
	require.LessOrEqual(t, strings.Count(read(t, "../../../README.md"), "\n"), readmeLines)
}

// lines counts the lines that are not blank.
func lines(code string) (n int) {
	for line := range strings.Lines(code) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

// build builds an example, with some of its texts replaced.
func build(t *testing.T, example string, replaced map[string]string) (program string) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(example, "main.go"))
	require.NoError(t, err)
	dir, text := t.TempDir(), read(t, file)
	for old, changed := range replaced {
		require.Contains(t, text, old)
		text = strings.ReplaceAll(text, old, changed)
	}
	changed, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(changed, []byte(text), 0o600))
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, content, 0o600))
	program = filepath.Join(dir, example)
	out, err := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "./"+example).CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// statuses are those of the events in the table, by aggregate id.
func statuses(t *testing.T, db *testdb.DB) map[string]outbox.Status {
	t.Helper()
	found := map[string]outbox.Status{}
	rows, err := db.QueryContext(t.Context(), "SELECT aggregate_id, status FROM outbox_event")
	require.NoError(t, err)
	for rows.Next() {
		var id string
		var status outbox.Status
		require.NoError(t, rows.Scan(&id, &status))
		found[id] = status
	}
	require.NoError(t, rows.Err())
	return found
}

func count(t *testing.T, db *testdb.DB) (orders int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&orders))
	return orders
}

// The service makes its tables, answers after the commit, delivers, and ends by a signal.
func TestTheServiceOfTheReadmeDelivers(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	address := freeAddress(t)
	program := build(t, "service", map[string]string{"postgres://postgres@localhost/postgres": db.DSN, ":8080": address})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdout, cmd.Stderr = &out, &out // one writer: exec then writes from one goroutine
	require.NoError(t, cmd.Start())

	post := func(path string) (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, nil)
		if err != nil {
			return 0, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, err := post("/orders/o-1/tea")
		require.NoError(c, err)
		require.Equal(c, http.StatusOK, status)
	}, 30*time.Second, 50*time.Millisecond)
	status, err := post("/orders/o-1/coffee") // the id is taken
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, status)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), out.String())
	require.Equal(t, map[string]outbox.Status{"o-1": outbox.StatusDone}, statuses(t, db), out.String())
	require.Equal(t, 1, count(t, db))
	require.Contains(t, out.String(), "sending a mail")
}

// freeAddress is free until something else takes it.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// versioned are the modules whose versions README.md names.
var versioned = [][2]string{
	{"pgx", "github.com/jackc/pgx/v5"},
	{"lib/pq", "github.com/lib/pq"},
	{"bun's pgdriver", "github.com/uptrace/bun/driver/pgdriver"},
	{"go-sql-driver/mysql", "github.com/go-sql-driver/mysql"},
	{"modernc.org/sqlite", "modernc.org/sqlite"},
	{"mattn/go-sqlite3", "github.com/mattn/go-sqlite3"},
	{"GORM", "gorm.io/gorm"},
	{"bun", "github.com/uptrace/bun"},
	{"sqlx", "github.com/jmoiron/sqlx"},
	{"fx", "go.uber.org/fx"},
	{"Echo", "github.com/labstack/echo/v5"},
	{"Echo", "github.com/labstack/echo/v4"},
	{"gin", "github.com/gin-gonic/gin"},
	{"gRPC", "google.golang.org/grpc"},
}

func TestTheReadmeNamesTheVersionsOfTheWorkspace(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, "../../../README.md"), "\n## Versions\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../../go.mod"))
	require.Contains(t, section, "Go "+goVersion[1]+" or newer")
	for _, m := range versioned {
		version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", m[1]).Output()
		require.NoError(t, err, m[1])
		require.Contains(t, section, m[0]+" "+strings.TrimPrefix(strings.TrimSpace(string(version)), "v"), "the version in the workspace")
	}
}
