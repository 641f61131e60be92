package check_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms are the folders of the files that docs/ARCHITECTURE.md names without a path.
var rooms = []string{"outbox", "outbox/sqlstore", "adapters", "adapters/otel", "adapters/prometheus", "internal", "fxmodule"}

// A reader who has only the page must find the file.
func TestTheArchitecturePageNamesTheFilesThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	require.NoError(t, err)
	named := map[string]bool{}
	for _, quoted := range regexp.MustCompile("`[a-z_/]+\\.(go|sql)`").FindAllString(string(page), -1) {
		name := strings.Trim(quoted, "`")
		named[name] = true
		found := false
		for _, room := range append(rooms, "") {
			_, err := os.Stat(filepath.Join(root, room, name))
			found = found || err == nil
		}
		require.True(t, found, "the page names %s, which does not exist", name)
	}
	files, err := filepath.Glob(filepath.Join(root, "outbox", "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		if name := filepath.Base(path); name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
			require.True(t, named[name], "the page does not name outbox/%s", name)
		}
	}
}
