package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const placeholder = "v0.0.0-00010101000000-000000000000"

func nested(name, body string, own ...string) string {
	text := "module " + library + "/" + name + "\n\ngo 1.26.0\n\nrequire (\n\t" + library + " " + placeholder + "\n"
	for _, path := range own {
		text += "\t" + library + "/" + path + " " + placeholder + "\n"
	}
	text += ")\n\nreplace " + library + " => ../..\n"
	for _, path := range own {
		text += "\nreplace " + library + "/" + path + " => ../../" + path + "\n"
	}
	return text + body
}

func files() map[string]string {
	return map[string]string{
		"go.mod":                  "module " + library + "\n\ngo 1.26.0\n",
		"outbox.go":               "package outbox\n",
		"CHANGELOG.md":            "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- Much.\n\n## [0.1.0] - 2026-11-01\n\n- First.\n",
		"relay/nats/go.mod":       nested("relay/nats", ""),
		"relay/nats/nats.go":      "package nats\n\nimport _ \"" + library + "\"\n",
		"samples/demo/go.mod":     nested("samples/demo", "", "relay/nats"),
		"samples/demo/main.go":    "package main\n\nimport (\n\t_ \"" + library + "\"\n\t_ \"" + library + "/relay/nats\"\n)\n\nfunc main() {}\n",
		".hidden/other/go.mod":    "module example.com/other\n",
		"internal/unrelated.text": "go.mod\n",
	}
}

// clone makes a repository with one commit. Its git knows no settings of the machine.
func clone(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(files[name]), 0o600))
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "user.name", "Tester")
	git(t, dir, "config", "user.email", "tester@example.com")
	git(t, dir, "config", "commit.gpgsign", "false")
	git(t, dir, "config", "tag.gpgsign", "false")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "First")
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), dir, "git", args...)
	require.NoError(t, err)
	return out
}

func TestAReleaseTagsTheRootAndEachModuleThatUsersImport(t *testing.T) {
	t.Parallel()
	dir := clone(t, files())
	r := repository{dir: dir, version: "v0.2.0"}
	tags, err := r.release(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"v0.2.0", "relay/nats/v0.2.0"}, tags)
	require.Equal(t, "relay/nats/v0.2.0\nv0.2.0", git(t, dir, "tag", "--points-at", "HEAD"))
	require.Equal(t, "Release v0.2.0", git(t, dir, "log", "-1", "--format=%s"))
	require.Empty(t, git(t, dir, "status", "--porcelain"))
	for name, requires := range map[string]int{"relay/nats/go.mod": 1, "samples/demo/go.mod": 2} {
		text := git(t, dir, "show", "HEAD:"+name)
		require.Equal(t, requires, strings.Count(text, " v0.2.0\n"), text)
		require.NotContains(t, text, placeholder)
		require.Contains(t, text, "replace "+library+" => ", "development goes on with the code beside it")
	}
	notes, err := r.verify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "### Added\n\n- Much.", notes)
}

func TestAReleaseIsRefusedAndLeavesTheTreeAsItWas(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version string
		change  func(t *testing.T, dir string)
		problem string
	}{
		"no version":         {"", nil, "give one such as v0.1.0"},
		"no v":               {"0.2.0", nil, "give one such as v0.1.0"},
		"no section":         {"v0.3.0", nil, "CHANGELOG.md has no section"},
		"a version's prefix": {"v0.2.0-rc.1", nil, "CHANGELOG.md has no section"},
		"a change":           {"v0.2.0", func(t *testing.T, dir string) { write(t, dir, "new.go", "package outbox\n") }, "the working tree has changes"},
		"a tag":              {"v0.2.0", func(t *testing.T, dir string) { git(t, dir, "tag", "relay/nats/v0.2.0") }, "relay/nats/v0.2.0"},
		"an empty section": {"v0.2.0", func(t *testing.T, dir string) {
			write(t, dir, "CHANGELOG.md", "# Changelog\n\n## [0.2.0] - 2026-12-01\n\n## [0.1.0] - 2026-11-01\n")
			git(t, dir, "commit", "-qam", "Empty")
		}, "is empty"},
		"an untidy module": {"v0.2.0", func(t *testing.T, dir string) {
			write(t, dir, "relay/nats/nats.go", "package nats\n")
			git(t, dir, "commit", "-qam", "Untidy")
		}, "go mod tidy -diff"},
		"a module without the library": {"v0.2.0", func(t *testing.T, dir string) {
			write(t, dir, "relay/nats/go.mod", "module "+library+"/relay/nats\n\ngo 1.26.0\n")
			git(t, dir, "commit", "-qam", "Alone")
		}, "does not require " + library},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := clone(t, files())
			if tt.change != nil {
				tt.change(t, dir)
			}
			head, status, tags := git(t, dir, "rev-parse", "HEAD"), git(t, dir, "status", "--porcelain"), git(t, dir, "tag")
			_, err := repository{dir: dir, version: tt.version}.release(t.Context())
			require.ErrorContains(t, err, tt.problem)
			require.Equal(t, head, git(t, dir, "rev-parse", "HEAD"))
			require.Equal(t, status, git(t, dir, "status", "--porcelain"))
			require.Equal(t, tags, git(t, dir, "tag"))
		})
	}
}

func TestATreeThatWasNotReleasedIsReported(t *testing.T) {
	t.Parallel()
	dir := clone(t, files())
	git(t, dir, "tag", "v0.2.0")
	_, err := repository{dir: dir, version: "v0.2.0"}.verify(t.Context())
	require.ErrorContains(t, err, "go.mod of relay/nats requires "+library+" "+placeholder)
	require.ErrorContains(t, err, "the tag relay/nats/v0.2.0 is missing")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o600))
}
