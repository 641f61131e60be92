package release_test

import (
	"archive/zip"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/release"
)

// buildBox builds box and returns its modules by folder.
func buildBox(t *testing.T) (*release.Built, map[string]*release.BuiltModule) {
	t.Helper()
	repository, err := release.Load(t.Context(), commitBox(t, nil))
	require.NoError(t, err)
	built, err := release.Build(repository, filepath.Join(t.TempDir(), "proxy"))
	require.NoError(t, err)
	modules := map[string]*release.BuiltModule{}
	for _, m := range built.Modules {
		modules[m.Dir] = m
	}
	return built, modules
}

func TestAReleasedModuleReplacesNothingAndRequiresTheVersion(t *testing.T) {
	t.Parallel()
	_, modules := buildBox(t)
	require.Equal(t, box["go.mod"], string(modules["."].GoMod))
	require.Empty(t, modules["."].GoSum)
	require.Equal(t, `module github.com/example/box/cmd/tool

go 1.26.0

require github.com/example/box/adapter v0.2.0 // as it was

require github.com/example/box v0.2.0 // indirect
`, string(modules["cmd/tool"].GoMod))
	sums := func(dir string) (names []string) {
		for line := range strings.Lines(string(modules[dir].GoSum)) {
			fields := strings.Fields(line)
			require.Len(t, fields, 3)
			require.Regexp(t, "^h1:", fields[2])
			names = append(names, strings.Join(fields[:2], " "))
		}
		return names
	}
	root, adapter := "github.com/example/box v0.2.0", "github.com/example/box/adapter v0.2.0"
	require.Equal(t, []string{root, root + "/go.mod"}, sums("adapter"))
	require.Equal(t, []string{root, root + "/go.mod", adapter, adapter + "/go.mod"}, sums("cmd/tool"))
	require.Equal(t, []string{adapter, adapter + "/go.mod"}, sums("plain"), "no package of the root is imported")
}

func TestAModuleComesAfterThoseThatItRequires(t *testing.T) {
	t.Parallel()
	built, _ := buildBox(t)
	var order []string
	for _, m := range built.Modules {
		order = append(order, m.Dir)
	}
	require.Less(t, slices.Index(order, "."), slices.Index(order, "adapter"))
	require.Less(t, slices.Index(order, "adapter"), slices.Index(order, "cmd/tool"))
	require.Less(t, slices.Index(order, "adapter"), slices.Index(order, "plain"))
	require.NotContains(t, order, "proof")
}

// zipped are the files of a module's zip.
func zipped(t *testing.T, built *release.Built, m *release.BuiltModule) map[string]string {
	t.Helper()
	name := filepath.Join(built.Proxy, filepath.FromSlash(m.Path), "@v", built.Version+".zip")
	archive, err := zip.OpenReader(name)
	require.NoError(t, err)
	defer archive.Close()
	files := map[string]string{}
	for _, file := range archive.File {
		opened, err := file.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(opened)
		require.NoError(t, err)
		files[strings.TrimPrefix(file.Name, m.Path+"@"+built.Version+"/")] = string(data)
	}
	return files
}

func TestAZipHasTheFilesOfItsModuleAlone(t *testing.T) {
	t.Parallel()
	built, modules := buildBox(t)
	require.ElementsMatch(t, []string{"LICENSE", "versions.yaml", ".gitignore", "go.mod", "box.go", "internal/help/help.go"},
		slices.Collect(maps.Keys(zipped(t, built, modules["."]))), "neither other modules nor what git ignores")
	require.Equal(t, map[string]string{
		"LICENSE": box["LICENSE"], "main.go": box["cmd/tool/main.go"],
		"go.mod": string(modules["cmd/tool"].GoMod), "go.sum": string(modules["cmd/tool"].GoSum),
	}, zipped(t, built, modules["cmd/tool"]), "the license of the root is in each zip")
	require.Equal(t, box["adapter/LICENSE"], zipped(t, built, modules["adapter"])["LICENSE"], "a module's own license stays")
}

func TestThePackagesForUsersAreFound(t *testing.T) {
	t.Parallel()
	_, modules := buildBox(t)
	require.Equal(t, []string{"github.com/example/box"}, modules["."].Packages, "no internal package")
	require.Equal(t, []string{"github.com/example/box/adapter", "github.com/example/box/adapter/simple"}, modules["adapter"].Packages)
	require.Empty(t, modules["cmd/tool"].Packages)
	require.Equal(t, []string{"github.com/example/box/cmd/tool"}, modules["cmd/tool"].Programs)
}

// check uses the modules of a repository from their zips alone.
func check(t *testing.T, dir string) error {
	t.Helper()
	return each(t, dir, func(c *release.Checker, m *release.BuiltModule) error {
		return errors.Join(c.Tidy(t.Context(), m), c.Imports(t.Context(), m), c.Packages(t.Context(), m), c.Programs(t.Context(), m))
	})
}

// each calls use for the modules of a repository until it returns an error.
func each(t *testing.T, dir string, use func(*release.Checker, *release.BuiltModule) error) error {
	t.Helper()
	repository, err := release.Load(t.Context(), dir)
	require.NoError(t, err)
	temporary := t.TempDir()
	built, err := release.Build(repository, filepath.Join(temporary, "proxy"))
	require.NoError(t, err)
	checker, err := release.NewChecker(t.Context(), built, temporary, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, checker.Close()) }()
	for _, m := range built.Modules {
		if err := use(checker, m); err != nil {
			return err
		}
	}
	return nil
}

func TestTheModulesOfABoxAreOfUseAlone(t *testing.T) {
	t.Parallel()
	require.NoError(t, check(t, commitBox(t, nil)))
}

// git ignores the package, so that users would not get it. Nothing is compiled to notice.
func TestAPackageThatIsInNoZipIsNamed(t *testing.T) {
	t.Parallel()
	err := each(t, commitBox(t, map[string]string{
		".gitignore": "/ignored.go\n/lost\n", "lost/lost.go": "package lost\n",
		"box.go": "package box\n\nimport _ \"github.com/example/box/lost\"\n\nconst Name = \"box\"\n",
	}), func(c *release.Checker, m *release.BuiltModule) error { return c.Imports(t.Context(), m) })
	require.ErrorContains(t, err, "github.com/example/box/lost")
}

// A workspace and replace lines hide this: beside the module there is the package.
func TestAModuleThatLacksARequireLineIsNamed(t *testing.T) {
	t.Parallel()
	dir := commitBox(t, map[string]string{"adapter/go.mod": "module github.com/example/box/adapter\n\ngo 1.26.0\n"})
	require.ErrorContains(t, check(t, dir), "module github.com/example/box/adapter@v0.2.0 alone")
}

func TestAModuleOfOthersThatIsNotInTheCacheIsNamedWithTheWayToGetIt(t *testing.T) {
	t.Parallel()
	err := check(t, commitBox(t, map[string]string{
		"box.go": "package box\n\nimport \"example.com/none\"\n\nconst Name = none.Name\n",
		"go.mod": box["go.mod"] + "\nrequire example.com/none v1.0.0\n",
	}))
	require.ErrorContains(t, err, "example.com/none@v1.0.0")
	require.ErrorContains(t, err, "go mod download in each folder with a go.mod fills it")
}

func TestARepositoryThatCannotBeReleasedIsRefused(t *testing.T) {
	t.Parallel()
	requires := func(name string) string {
		return "\nrequire " + name + " v0.0.0\n"
	}
	for name, test := range map[string]struct {
		changed map[string]string
		want    string
	}{
		"a module that the file does not list": {
			map[string]string{"more/go.mod": "module github.com/example/box/more\n"},
			"versions.yaml does not list module github.com/example/box/more (more/go.mod)",
		},
		"a listed module without go.mod": {
			map[string]string{"plain/go.mod": ""},
			"versions.yaml lists module github.com/example/box/plain, which has no go.mod",
		},
		"a module that is listed twice": {
			map[string]string{"versions.yaml": box["versions.yaml"] + "  - github.com/example/box/plain\n"},
			"versions.yaml names module github.com/example/box/plain twice",
		},
		"a version that is none": {
			map[string]string{"versions.yaml": strings.Replace(box["versions.yaml"], "v0.2.0", "0.2", 1)},
			`the version "0.2" is not of the form v0.1.0`,
		},
		"a key that is misspelled": {
			map[string]string{"versions.yaml": strings.Replace(box["versions.yaml"], "excluded:", "exclude:", 1)},
			"field exclude not found",
		},
		"a module in the wrong folder": {
			map[string]string{"plain/go.mod": "module github.com/example/box/other\n"},
			"plain/go.mod names module github.com/example/box/other; in this folder it is github.com/example/box/plain",
		},
		"a released module that requires an excluded one": {
			map[string]string{"adapter/go.mod": box["adapter/go.mod"] + requires("github.com/example/box/proof")},
			"adapter/go.mod requires github.com/example/box/proof, which versions.yaml excludes from the release",
		},
		"a module that is not there": {
			map[string]string{"adapter/go.mod": box["adapter/go.mod"] + requires("github.com/example/box/none")},
			"adapter/go.mod requires github.com/example/box/none, which is no module of this repository",
		},
		"modules that require each other": {
			map[string]string{"go.mod": box["go.mod"] + requires("github.com/example/box/adapter")},
			"github.com/example/box/adapter -> github.com/example/box -> github.com/example/box/adapter",
		},
		"a replaced module of others": {
			map[string]string{"adapter/go.mod": box["adapter/go.mod"] + "\nreplace example.com/other => ../other\n"},
			"adapter/go.mod replaces example.com/other",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository, err := release.Load(t.Context(), commitBox(t, test.changed))
			if err == nil {
				_, err = release.Build(repository, t.TempDir())
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}
