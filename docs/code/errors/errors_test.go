// Package errors_test holds docs/reference/errors.md to the code.
package errors_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// others are messages of Go and of databases.
var others = map[string]bool{"context deadline exceeded": true, "duplicate key": true, "SQLITE_BUSY": true, "database is locked": true}

// sources is the text of all Go files of the library, without tests and samples.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && (path != root && strings.HasPrefix(name, ".") || name == "samples" || name == "bench" || name == "proof" || name == "internal" && filepath.Dir(path) == root):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			all.Write(text)
		}
		return nil
	}))
	for _, folder := range []string{"txscope", "sqlname"} { // their errors reach users
		files, err := filepath.Glob(filepath.Join(root, "internal", folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all.Write(text)
		}
	}
	return all.String()
}

func TestEachMessageIsInTheCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/errors.md"))
	require.NoError(t, err)
	_, messages, found := strings.Cut(string(page), "\n## Messages\n")
	require.True(t, found)
	code := sources(t)
	count := 0
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|]*`[^|]*) \\|").FindAllStringSubmatch(messages, -1) {
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			count++
			for _, part := range strings.Split(message[1], "…") {
				part = strings.TrimSpace(part)
				require.True(t, len(part) < 4 || others[message[1]] || strings.Contains(code, part), "%q is in the page and not in the code: %q", message[1], part)
			}
		}
	}
	require.Greater(t, count, 50)
}
