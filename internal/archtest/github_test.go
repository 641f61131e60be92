package archtest_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// readYAML decodes a file below the root. A key that is there twice is an error.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", filepath.FromSlash(name)))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	require.NoError(t, yaml.NewDecoder(file).Decode(into), name)
}

func TestTheFilesForGitHubAreYAML(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", ".github")
	count := 0
	require.NoError(t, filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".yml") {
			return err
		}
		count++
		rel, err := filepath.Rel(filepath.Dir(root), file)
		require.NoError(t, err)
		var content map[string]any
		readYAML(t, filepath.ToSlash(rel), &content)
		require.NotEmpty(t, content, file)
		return nil
	}))
	require.Equal(t, 6, count)
}

func TestTheWorkflowRunsCIOnTheDatabases(t *testing.T) {
	t.Parallel()
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct {
					Include []struct{ Run, Go, Postgres, MySQL string }
				}
			}
			Services map[string]struct{ Image string }
			Env      map[string]string
			Steps    []struct{ Run string }
		}
	}
	readYAML(t, ".github/workflows/ci.yml", &workflow)
	job := workflow.Jobs["ci"]
	runs, goes, servers := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, m := range job.Strategy.Matrix.Include {
		runs[m.Run]++
		goes[m.Go]++
		server, _, _ := strings.Cut(m.MySQL, ":")
		servers[server] = true
		require.Contains(t, m.Postgres, "postgres:")
	}
	require.Equal(t, map[string]int{"ci": 1, "test/databases": 2, "test/floors": 1}, runs)
	require.Equal(t, map[string]int{"stable": 2, "oldstable": 1, oldestGo(t): 1}, goes)
	require.Equal(t, map[string]bool{"mysql": true, "mariadb": true}, servers)
	require.Contains(t, job.Services["postgres"].Image, "matrix.postgres")
	require.Contains(t, job.Services["mysql"].Image, "matrix.mysql")
	require.NotEmpty(t, job.Env["OUTBOX_TEST_POSTGRES"])
	require.NotEmpty(t, job.Env["OUTBOX_TEST_MYSQL"])
	require.Equal(t, "CI=true make ${{ matrix.run }}", job.Steps[len(job.Steps)-1].Run)
}

// oldestGo is the version of Go that the module names, without the number of the patch.
func oldestGo(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	_, version, _ := strings.Cut(string(text), "\ngo ")
	return version[:strings.LastIndex(version[:strings.IndexByte(version, '\n')], ".")]
}

func TestDependabotAndTheReleaseKnowEachModule(t *testing.T) {
	t.Parallel()
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	readYAML(t, ".github/dependabot.yml", &config)
	var release struct{ Modules, Excluded []string }
	readYAML(t, "versions.yaml", &release)
	root := filepath.Join("..", "..")
	var want []string
	require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != root && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if entry.Name() == "go.mod" {
			folder, err := filepath.Rel(root, filepath.Dir(file))
			require.NoError(t, err)
			want = append(want, path.Join("/", filepath.ToSlash(folder)))
		}
		return nil
	}))
	slices.Sort(want)
	require.Equal(t, "gomod", config.Updates[0].Ecosystem)
	var released, current []string
	for _, module := range append(release.Modules, release.Excluded...) {
		released = append(released, path.Join("/", strings.TrimPrefix(module, "github.com/outboxkit/outbox-go")))
	}
	require.ElementsMatch(t, want, released)
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	var used []string
	for line := range strings.Lines(string(text)) {
		if folder, isUse := strings.CutPrefix(line, "\t."); isUse {
			used = append(used, path.Join("/", strings.TrimSpace(folder)))
		}
	}
	require.ElementsMatch(t, want, used, "go.work")
	for _, module := range append(release.Excluded, "github.com/outboxkit/outbox-go/cmd/outbox") {
		current = append(current, path.Join("/", strings.TrimPrefix(module, "github.com/outboxkit/outbox-go")))
	}
	require.ElementsMatch(t, current, config.Updates[0].Directories)
}
