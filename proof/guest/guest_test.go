package guest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/outboxkit/outbox-go/proof/guest"
)

// publish writes a version of a module with a package to a module proxy in a folder.
func publish(t *testing.T, proxy, name, version, source string, requires ...string) {
	t.Helper()
	mod := "module " + name + "\n\ngo 1.26.0\n"
	for _, required := range requires {
		mod += "\nrequire " + required + "\n"
	}
	tree := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tree, "go.mod"), []byte(mod), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "a.go"), []byte(source), 0o644))
	folder := filepath.Join(proxy, filepath.FromSlash(name), "@v")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	archive, err := os.Create(filepath.Join(folder, version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromDir(archive, module.Version{Path: name, Version: version}, tree))
	require.NoError(t, archive.Close())
	require.NoError(t, os.WriteFile(filepath.Join(folder, version+".mod"), []byte(mod), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, version+".info"), fmt.Appendf(nil, `{"Version":%q}`, version), 0o644))
}

// offline runs go commands with the modules of a proxy in a folder, and no others.
func offline(proxy, cache string) guest.Go {
	return func(ctx context.Context, dir string, arguments ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "go", arguments...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=file://"+proxy, "GOMODCACHE="+cache, "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=",
			"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOTOOLCHAIN=local")
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("go %s: %w\n%s", strings.Join(arguments, " "), err, exit.Stderr)
		}
		return string(out), err
	}
}

// Package ours imports package used, and its go.mod requires module unused for its tests.
func TestAVersionThatIsRaisedForNothingIsNamedWithTheModuleThatRequiresIt(t *testing.T) {
	t.Parallel()
	proxy, cache := t.TempDir(), t.TempDir()
	publish(t, proxy, "example.com/used", "v1.0.0", "package used\n")
	publish(t, proxy, "example.com/used", "v1.1.0", "package used\n", "example.com/usersown v1.1.0")
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		publish(t, proxy, "example.com/usersown", version, "package usersown\n")
		publish(t, proxy, "example.com/unused", version, "package unused\n")
	}
	publish(t, proxy, "example.com/same", "v1.0.0", "package same\n")
	publish(t, proxy, "example.com/ours", "v0.1.0", "package ours\n\nimport _ \"example.com/used\"\n",
		"example.com/used v1.1.0", "example.com/unused v1.1.0", "example.com/same v1.0.0")
	publish(t, proxy, "example.com/ours/nested", "v0.1.0", "package nested\n\nimport _ \"example.com/ours\"\n", "example.com/ours v0.1.0")
	run := offline(proxy, cache)

	libraries := []guest.Library{
		{Module: "example.com/used", Version: "v1.0.0", Package: "example.com/used"},
		{Module: "example.com/unused", Version: "v1.0.0", Package: "example.com/unused"},
		{Module: "example.com/usersown", Version: "v1.0.0", Package: "example.com/usersown"},
		{Module: "example.com/same", Version: "v1.0.0", Package: "example.com/same"},
	}
	full, err := guest.New(t.Context(), run, t.TempDir(), "1.26.0", libraries)
	require.NoError(t, err)
	require.Equal(t, 4, full.Modules())
	result, err := full.Add(t.Context(), run, t.TempDir(), "example.com/ours", "example.com/ours", "v0.1.0", false)
	require.NoError(t, err)
	unneeded := guest.Raised{Module: "example.com/unused", From: "v1.0.0", To: "v1.1.0", RequiredBy: []string{"example.com/ours@v0.1.0"}}
	require.Equal(t, []guest.Raised{unneeded, {Module: "example.com/used", From: "v1.0.0", To: "v1.1.0"}, {Module: "example.com/usersown", From: "v1.0.0", To: "v1.1.0"}}, result.Raised)
	require.Equal(t, []guest.Raised{unneeded}, result.Unneeded())
	require.Equal(t, 1, result.Modules, "ours")
	result, err = full.Add(t.Context(), run, t.TempDir(), "example.com/ours", "example.com/ours/nested", "v0.1.0", false)
	require.NoError(t, err)
	require.Equal(t, []guest.Raised{unneeded}, result.Unneeded(), "required by the root of a nested module")

	empty, err := guest.New(t.Context(), run, t.TempDir(), "1.26.0", nil)
	require.NoError(t, err)
	require.Zero(t, empty.Modules())
	result, err = empty.Add(t.Context(), run, t.TempDir(), "example.com/ours", "example.com/ours", "v0.1.0", false)
	require.NoError(t, err)
	require.Empty(t, result.Raised)
	require.Equal(t, 5, result.Modules)
	require.Equal(t, 4, result.Sums, "the go.mod and the packages of ours and used")
}

func TestTheListOfLibrariesHasModulesAtVersions(t *testing.T) {
	t.Parallel()
	libraries, err := guest.Libraries()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(libraries), 20)
	seen := map[string]bool{}
	for _, l := range libraries {
		require.False(t, seen[l.Module], l.Module)
		seen[l.Module] = true
	}
}
