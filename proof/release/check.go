package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Checker uses released modules as a user does: each from its zip alone.
type Checker struct {
	built  *Built
	cache  *Cache
	dir    string
	online bool
}

// NewChecker makes a checker that works in the folder dir. If online is set, modules of others
// that the module cache lacks are downloaded.
func NewChecker(ctx context.Context, built *Built, dir string, online bool) (*Checker, error) {
	cache, err := NewCache(ctx, filepath.Join(dir, "cache"), built.root)
	if err != nil {
		return nil, err
	}
	return &Checker{built: built, cache: cache, dir: dir, online: online}, nil
}

// Close removes the module cache of the checker.
func (c *Checker) Close() error { return c.cache.Remove() }

// Imports adds each public package and each program of a module to an empty module, and finds all packages
// that they import. Nothing is compiled.
func (c *Checker) Imports(ctx context.Context, m *BuiltModule) error {
	packages := slices.Concat(m.Packages, m.Programs)
	return c.alone(ctx, m, packages, append([]string{"list", "-deps"}, packages...))
}

// Packages adds each public package of a module to an empty module, and builds it.
func (c *Checker) Packages(ctx context.Context, m *BuiltModule) error {
	if len(m.Packages) == 0 {
		return nil
	}
	return c.alone(ctx, m, m.Packages, append([]string{"build"}, m.Packages...))
}

// alone runs a go command in a new module, to which it has added packages.
func (c *Checker) alone(ctx context.Context, m *BuiltModule, packages, command []string) error {
	dir, err := os.MkdirTemp(c.dir, "alone-")
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	get := []string{"get"}
	for _, imported := range packages {
		get = append(get, imported+"@"+c.built.Version)
	}
	for _, arguments := range [][]string{{"mod", "init", "example.com/alone"}, get, command} {
		if err := c.run(ctx, dir, m, arguments...); err != nil {
			return err
		}
	}
	return nil
}

// Programs installs each program of a module.
func (c *Checker) Programs(ctx context.Context, m *BuiltModule) error {
	for _, program := range m.Programs {
		if err := c.run(ctx, c.dir, m, "install", program+"@"+c.built.Version); err != nil {
			return err
		}
	}
	return nil
}

// Tidy checks that `go mod tidy` would change nothing in a module as it is released, with its
// go.sum. For that, the modules of others must be in the module cache with the modules that their tests
// need, as `go mod tidy` in the repository leaves them.
func (c *Checker) Tidy(ctx context.Context, m *BuiltModule) error {
	escaped, err := escape(m.Path)
	if err != nil {
		return err
	}
	if err := c.run(ctx, c.dir, m, "mod", "download", m.Path+"@"+c.built.Version); err != nil {
		return err
	}
	dir := filepath.Join(c.cache.dir, filepath.FromSlash(escaped)+"@"+c.built.Version)
	return c.run(ctx, dir, m, "mod", "tidy", "-diff")
}

// missing is in the error of the go command about a file that a proxy on disk does not have.
var missing = regexp.MustCompile(`reading file://.*\n?.*no such file or directory`)

func (c *Checker) run(ctx context.Context, dir string, m *BuiltModule, arguments ...string) error {
	_, err := c.Go(ctx, dir, arguments...)
	if err == nil {
		return nil
	}
	if !c.online && missing.MatchString(err.Error()) {
		err = errors.Join(err, fmt.Errorf("the module cache %s lacks modules of others; GOWORK=off go mod download in each folder with a go.mod fills it", c.cache.shared))
	}
	return fmt.Errorf("release: module %s@%s alone: %w", m.Path, c.built.Version, err)
}

// Go runs a go command in a folder, with the released modules, and returns its output.
func (c *Checker) Go(ctx context.Context, dir string, arguments ...string) (string, error) {
	env := append(c.cache.Env(c.built.Proxy, c.built.root, c.online), "GOBIN="+filepath.Join(c.dir, "bin"))
	return run(ctx, dir, env, "go", arguments...)
}
