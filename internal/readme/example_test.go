package readme_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/internal/readme"
)

func TestReadmeShowsTheCodeThatCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), "```go\n")
	require.True(t, found, "README.md has no Go block")
	block, _, _ = strings.Cut(block, "```")
	code, err := os.ReadFile("example.go")
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(code), block), "README.md and example.go differ: copy one to the other")
	require.LessOrEqual(t, strings.Count(block, "\n"), 32, "the example is to be read at a glance")
}

func TestReadmeExampleDelivers(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "readme.db")+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT, item TEXT)")
	require.NoError(t, err)
	require.NoError(t, readme.Serve(t.Context(), db))
	require.Equal(t, "tea", <-readme.Mails)
}
