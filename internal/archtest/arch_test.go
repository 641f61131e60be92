// Package archtest checks which package may import which.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/outboxkit/outbox-go"

const pgx = "github.com/jackc/pgx"

var drivers = []string{
	pgx, "github.com/lib/pq", "github.com/uptrace/bun/driver", "github.com/go-sql-driver/mysql",
	"github.com/mattn/go-sqlite3", "modernc.org/sqlite", "github.com/glebarez", "gorm.io/driver",
}

// notifierDriver is the driver through which a notifier listens, or a reader reads the log: database/sql
// has no way to do that.
var notifierDriver = map[string]string{
	"adapters/pgnotify": "github.com/jackc/pgx",
	"adapters/pqnotify": "github.com/lib/pq",
	"relay/binlog":      "github.com/go-sql-driver/mysql",
	"relay/cdc":         "github.com/jackc/pgx",
}

// pkg is go list's output for a package: Deps without its tests.
type pkg struct {
	ImportPath string
	Standard   bool
	Deps       []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Deps", module+"/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		require.NoError(t, err)
		pkgs = append(pkgs, p)
	}
}

// rule says what a package, named without the module path, must not depend on, and
// why.
type rule struct {
	why     string
	applies func(own string) bool
	refuses func(own, dep string, standard bool) bool
}

func inside(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func ours(dep string) (own string, ok bool) { return strings.CutPrefix(dep, module+"/") }

// mayImportDrivers are folders of programs, of pages, and of packages for tests.
var mayImportDrivers = []string{
	"samples", "docs", "proof", "bench", "cmd/outbox", "internal/testing/testdb", "internal/testing/adaptertest", "internal/testing/webtest", "internal/testing/relaytest", "internal/testing/dashtest",
	"internal/tools/withdb",
}

var rules = []rule{
	{
		"outbox imports the standard library alone",
		func(own string) bool { return inside(own, "outbox") },
		func(_, dep string, standard bool) bool {
			own, isOurs := ours(dep)
			return !standard && (!isOurs || !inside(own, "outbox") && !inside(own, "internal/txscope") && !inside(own, "internal/sqlerr") && !inside(own, "internal/sqlname") && !inside(own, "internal/nilness"))
		},
	},
	{
		"drivers are the user's choice",
		// testdb imports the drivers; withdb finds servers with it, and
		// adaptertest, webtest, relaytest and dashtest open its pools. The command line
		// is a program.
		func(own string) bool {
			return notifierDriver[own] == "" && !slices.ContainsFunc(mayImportDrivers, func(folder string) bool { return inside(own, folder) })
		},
		func(own, dep string, _ bool) bool {
			for _, d := range drivers {
				if inside(dep, d) {
					return d != pgx || own != "adapters/pgx" // the adapter for that driver
				}
			}
			return false
		},
	},
	{
		"an adapter imports no other adapter but sqltx",
		func(own string) bool { return inside(own, "adapters") },
		func(own, dep string, _ bool) bool {
			other, isOurs := ours(dep)
			return isOurs && inside(other, "adapters") && !inside(other, "adapters/sqltx") && !inside(other, strings.Join(strings.Split(own, "/")[:2], "/"))
		},
	},
	{
		"fxmodule and the web frameworks know no ORM",
		func(own string) bool {
			return inside(own, "fxmodule") || slices.ContainsFunc(web, func(w string) bool { return inside(own, w) })
		},
		func(_, dep string, _ bool) bool {
			own, isOurs := ours(dep)
			return inside(dep, "gorm.io/gorm") || inside(dep, "github.com/uptrace/bun") ||
				isOurs && (inside(own, "adapters/bun") || inside(own, "adapters/gorm") || inside(own, "adapters/sqltx"))
		},
	},
	{
		"inbox imports the standard library alone, for it serves consumers without an outbox",
		func(own string) bool { return inside(own, "inbox") },
		func(_, dep string, standard bool) bool {
			own, isOurs := ours(dep)
			return !standard && (!isOurs || !inside(own, "inbox") && !inside(own, "internal/sqltable") && !inside(own, "internal/sqlname") && !inside(own, "internal/nilness"))
		},
	},
	{
		"idempotency imports the standard library and outbox alone",
		func(own string) bool { return inside(own, "idempotency") },
		func(_, dep string, standard bool) bool {
			own, isOurs := ours(dep)
			return !standard && (!isOurs || !inside(own, "outbox") && !inside(own, "internal") && own != "idempotency")
		},
	},
	{
		"a notifier and a reader of the log import one driver",
		func(own string) bool { return notifierDriver[own] != "" },
		func(own, dep string, _ bool) bool {
			for _, d := range drivers {
				if d != notifierDriver[own] && inside(dep, d) {
					return true
				}
			}
			return false
		},
	},
	links("fxmodule", ""),
	links("fxmodule/outboxconf", "go.yaml.in"),
	links("fxmodule/fxprom", "github.com/prometheus"),
	links("fxmodule/fxotel", "go.opentelemetry.io"),
	{
		"txretry imports the standard library and outbox alone",
		func(own string) bool { return inside(own, "txretry") },
		func(_, dep string, standard bool) bool {
			own, isOurs := ours(dep)
			return !standard && (!isOurs || !inside(own, "outbox") && !inside(own, "internal") && own != "txretry")
		},
	},
	{
		"httptx imports the standard library, outbox, idempotency and txretry alone",
		func(own string) bool { return own == "httptx" },
		func(_, dep string, standard bool) bool {
			own, isOurs := ours(dep)
			return !standard && (!isOurs || !inside(own, "outbox") && !inside(own, "internal") && own != "idempotency" && own != "txretry" && own != "httptx")
		},
	},
	{
		"only the command line links the libraries of commands and of progress bars",
		func(own string) bool { return !inside(own, "cmd/outbox") },
		func(_, dep string, _ bool) bool {
			own, isOurs := ours(dep)
			return inside(dep, "github.com/spf13") || inside(dep, "github.com/schollz") || isOurs && inside(own, "cmd")
		},
	},
	serves("echomw", "github.com/labstack/echo/v4"),
	serves("echo5mw", "github.com/labstack/echo/v5"),
	serves("ginmw", "github.com/gin-gonic/gin"),
	serves("fibermw", "github.com/gofiber/fiber"),
	serves("grpctx", "google.golang.org/grpc"),
	serves("connecttx", "connectrpc.com/connect"),
	{
		"dashboard imports the standard library, httptx, idempotency and txretry through httptx, and outbox alone",
		func(own string) bool { return own == "dashboard" },
		func(_, dep string, standard bool) bool {
			own, isOurs := ours(dep)
			return !standard && (!isOurs || !inside(own, "outbox") && !inside(own, "internal") && own != "httptx" && own != "idempotency" && own != "txretry" && own != "dashboard")
		},
	},
	{
		"the core and the dashboard add no large package of the standard library to a program",
		func(own string) bool {
			return slices.Contains([]string{"outbox", "outbox/sqlstore", "adapters/sqltx", "inbox", "idempotency", "dashboard"}, own)
		},
		func(own, dep string, _ bool) bool {
			// With text/template, which calls methods by name, the linker keeps all exported methods of
			// the program's types.
			return dep == "text/template" || dep == "regexp" || own != "dashboard" && (dep == "net/http" || dep == "crypto/tls")
		},
	},
}

// web are the packages for web frameworks.
var web = []string{"httptx", "echomw", "ginmw", "fibermw", "grpctx", "connecttx"}

// serves is the rule that a web framework's package links no other framework, and
// no OpenTelemetry.
func serves(pkg, framework string) rule {
	return rule{
		"the package of a web framework links that one alone",
		func(own string) bool { return own == pkg },
		func(_, dep string, _ bool) bool {
			for _, other := range []string{"github.com/labstack/echo/v4", "github.com/labstack/echo/v5", "github.com/gin-gonic", "github.com/gofiber", "google.golang.org/grpc", "connectrpc.com", "go.opentelemetry.io"} {
				if inside(dep, other) && !inside(framework, other) {
					return true
				}
			}
			return false
		},
	}
}

// links is the rule that a package for fx apps depends on at most one optional
// library: an app links only what it imports by name.
func links(pkg, mayLink string) rule {
	return rule{
		"only the package of its name links YAML, Prometheus or OpenTelemetry",
		func(own string) bool { return own == pkg },
		func(_, dep string, _ bool) bool {
			for _, optional := range []string{"go.yaml.in", "gopkg.in", "github.com/knadh", "github.com/prometheus", "go.opentelemetry.io"} {
				if optional != mayLink && inside(dep, optional) {
					return true
				}
			}
			return false
		},
	}
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	standard := map[string]bool{}
	pkgs := list(t)
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	checked := 0
	for _, p := range pkgs {
		own, isOurs := ours(p.ImportPath)
		if !isOurs {
			continue
		}
		checked++
		for _, r := range rules {
			if !r.applies(own) {
				continue
			}
			for _, dep := range p.Deps {
				if dep != "C" && r.refuses(own, dep, standard[dep]) {
					t.Errorf("%s depends on %s: %s", own, dep, r.why)
				}
			}
		}
	}
	require.Greater(t, checked, 5, "go list found the module's packages")
}

func TestTheRulesRefuse(t *testing.T) {
	t.Parallel()
	for i, tc := range []struct{ own, dep string }{
		{"outbox/sqlstore", "github.com/stretchr/testify/require"},
		{"adapters/sqltx", "github.com/lib/pq/oid"},
		{"adapters/bun", module + "/adapters/gorm"},
		{"echomw", "gorm.io/gorm/clause"},
		{"inbox", module + "/outbox"},
		{"idempotency", module + "/httptx"},
		{"adapters/pgnotify", "github.com/lib/pq"},
		{"fxmodule", "go.yaml.in/yaml/v3"},
		{"fxmodule/outboxconf", "github.com/prometheus/client_golang/prometheus"},
		{"fxmodule/fxprom", "go.opentelemetry.io/otel"},
		{"fxmodule/fxotel", "github.com/prometheus/client_golang/prometheus"},
		{"txretry", module + "/httptx"},
		{"httptx", "github.com/labstack/echo/v5"},
		{"fxmodule", "github.com/spf13/cobra"},
		{"echomw", "github.com/labstack/echo/v5"},
		{"echo5mw", "github.com/labstack/echo/v4"},
		{"ginmw", "github.com/labstack/echo/v5/middleware"},
		{"fibermw", "github.com/gin-gonic/gin"},
		{"grpctx", "go.opentelemetry.io/otel/trace"},
		{"connecttx", "google.golang.org/grpc/status"},
		{"dashboard", "github.com/labstack/echo/v5"},
		{"dashboard", "text/template"},
	} {
		require.True(t, rules[i].applies(tc.own))
		require.True(t, rules[i].refuses(tc.own, tc.dep, false))
	}
	require.True(t, rules[1].applies("internal/testing/another"))
	require.True(t, rules[1].applies("internal/tools/another"))
	for _, exempt := range append(mayImportDrivers, "cmd/outbox/internal/doctor") {
		require.False(t, rules[1].applies(exempt))
	}
	require.False(t, rules[1].applies("adapters/pgnotify"))
	require.False(t, rules[6].refuses("adapters/pgnotify", "github.com/jackc/pgx/v5", false))
	require.False(t, rules[1].refuses("adapters/pgx", pgx+"/v5/pgxpool", false))
	require.True(t, rules[1].refuses("adapters/pgx", "github.com/lib/pq", false))
	require.True(t, rules[1].refuses("adapters/sqltx", pgx+"/v5", false))
	require.False(t, rules[0].refuses("outbox", "net/http", true))
	large := rules[len(rules)-1]
	require.True(t, large.refuses("outbox", "net/http", true))
	require.False(t, large.refuses("dashboard", "net/http", true))
	require.False(t, rules[2].refuses("adapters/sqltx", module+"/adapters/sqltx/inner", false))
	require.False(t, rules[2].refuses("adapters/bun", module+"/adapters/sqltx", false))
	require.True(t, rules[2].refuses("adapters/sqltx", module+"/adapters/bun", false))
}
