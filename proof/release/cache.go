package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Cache is a module cache that has all modules of the user's cache but ours.
//
// The user's own cache would keep our modules of an earlier run under the same version, and a new
// one would extract and compile the modules of others again. So Cache is a folder of links to the
// modules of others, and the go command writes our modules beside them. With -trimpath the folder
// is no part of a compiled package: the build cache serves each run.
type Cache struct {
	dir, shared, proxies string
}

// NewCache makes a cache in the folder dir for modules below root.
func NewCache(ctx context.Context, dir, root string) (*Cache, error) {
	out, err := run(ctx, os.TempDir(), []string{"GOWORK=off"}, "go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	var env struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal([]byte(out), &env); err != nil {
		return nil, fmt.Errorf("release: go env: %w", err)
	}
	c := &Cache{dir: dir, shared: env.GOMODCACHE, proxies: env.GOPROXY}
	escaped, err := escape(root)
	if err != nil {
		return nil, err
	}
	way := strings.Split(escaped, "/")
	if err := link(c.shared, dir, way, "cache"); err != nil {
		return nil, err
	}
	return c, link(filepath.Join(c.shared, "cache", "download"), filepath.Join(dir, "cache", "download"), way)
}

// link makes the folder to, with a link to each entry of the folder from. The entry on the way to
// our modules is a folder of its own, and neither our modules nor the entry that skip names has a link.
func link(from, to string, way []string, skip ...string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release: %w", err)
	}
	for _, entry := range entries {
		name, _, _ := strings.Cut(entry.Name(), "@")
		switch {
		case name == way[0] || len(skip) > 0 && name == skip[0]:
		default:
			if err := os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
				return fmt.Errorf("release: %w", err)
			}
		}
	}
	if len(way) == 1 {
		return nil
	}
	return link(filepath.Join(from, way[0]), filepath.Join(to, way[0]), way[1:])
}

// Remove removes the cache. The modules behind the links stay.
func (c *Cache) Remove() error {
	// The go command makes the folders of a module read-only. WalkDir follows no links.
	err := filepath.WalkDir(c.dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(name, 0o755)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(c.dir))
}

// Env are the variables of a go command that finds our modules in a proxy on disk, and the
// modules of others in the user's module cache. If online is set, the user's proxies serve the rest.
func (c *Cache) Env(proxy, root string, online bool) []string {
	proxies := "file://" + filepath.ToSlash(proxy) + ",file://" + filepath.ToSlash(filepath.Join(c.shared, "cache", "download"))
	env := []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -trimpath -buildvcs=false", "GOTOOLCHAIN=local", "CGO_ENABLED=0",
		"GOMODCACHE=" + c.dir, "GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=" + root,
	}
	if online {
		return append(env, "GOPROXY="+proxies+","+c.proxies)
	}
	return append(env, "GOPROXY="+proxies, "GOSUMDB=off")
}
