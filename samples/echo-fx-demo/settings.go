package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// Settings are the flags and variables.
type Settings struct {
	Addr        string // host:port; -addr or ADDR
	DataDir     string // -data or DATA_DIR
	DatabaseURL string // DATABASE_URL
	ORM         string // gorm, bun or sql; ORM
	Password    string // of /admin; ADMIN_PASSWORD, or made up
	Config      string // the outbox's YAML file; -config
	Traces      string // none, console or otlp; OTEL_TRACES_EXPORTER
	Tour        bool   // -tour

	GivenPassword bool // it is not to be printed
}

// variables end what -h says.
const variables = `
Variables:
  ADDR, DATA_DIR            for -addr and -data
  DATABASE_URL              postgres://… or mysql://…; by default a SQLite file in the data folder
  ORM                       gorm (the default), bun or sql
  ADMIN_PASSWORD            of /admin/outbox; by default one is made up
  OUTBOX_…                  settings of the outbox, which docs/FX.md lists
  OTEL_TRACES_EXPORTER      where spans go: none (the default), console or otlp
  OTEL_EXPORTER_OTLP_…      of otlp, over HTTP: …_ENDPOINT is http://localhost:4318 by default
  OTEL_SERVICE_NAME         whose spans they are; echo-fx-demo by default
  OTEL_RESOURCE_ATTRIBUTES  more of that

GET /metrics answers with metrics for Prometheus, GET /healthz with the health.
`

var orms = []string{"gorm", "bun", "sql"}

// readSettings reads what is set, and makes up the rest.
func readSettings(args []string, getenv func(string) string) (Settings, error) {
	or := func(name, otherwise string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return otherwise
	}
	s := Settings{DatabaseURL: getenv("DATABASE_URL"), ORM: or("ORM", orms[0]), Traces: strings.ToLower(strings.TrimSpace(getenv("OTEL_TRACES_EXPORTER"))), Password: or("ADMIN_PASSWORD", rand.Text()[:12]), GivenPassword: getenv("ADMIN_PASSWORD") != ""}
	flags := flag.NewFlagSet("echo-fx-demo", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "echo-fx-demo is an order service with an outbox.\n\nFlags:")
		flags.PrintDefaults()
		_, _ = fmt.Fprint(flags.Output(), variables)
	}
	flags.StringVar(&s.Addr, "addr", or("ADDR", ":8080"), "where to serve")
	flags.StringVar(&s.DataDir, "data", getenv("DATA_DIR"), "folder for the SQLite file and the list of deliveries; by default one under the user's cache")
	flags.StringVar(&s.Config, "config", "", "YAML file with settings of the outbox; variables OUTBOX_… stand above it")
	flags.BoolVar(&s.Tour, "tour", false, "try everything once, tell what happened, and end")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("the argument %q is one too many", flags.Arg(0))
	}
	if !slices.Contains(orms, s.ORM) {
		return s, fmt.Errorf("ORM is %q; known are %s", s.ORM, strings.Join(orms, ", "))
	}
	if s.DataDir == "" && !s.Tour {
		cache, err := os.UserCacheDir()
		if err != nil {
			return s, fmt.Errorf("finding a folder for the data, which -data would name: %w", err)
		}
		s.DataDir = filepath.Join(cache, "outbox-go", "echo-fx-demo")
	}
	return s, nil
}

// outboxConfig is the outbox's configuration: the file's and the variables', and
// for what they leave out what suits a demonstration.
func outboxConfig(s Settings) (outboxfx.Config, error) {
	config, err := outboxconf.Load(s.Config)
	if err != nil {
		return config, err
	}
	config.CreateSchema = true
	if config.Poller.Interval == 0 && config.Mode != outboxfx.WriterOnly {
		config.Poller.Interval = time.Second
	}
	if config.Retry == (outboxfx.RetryConfig{}) && (config.Mode == "" || config.Mode == outboxfx.SingleNode || config.Mode == outboxfx.MultiNode) {
		config.Retry.BaseDelay = 100 * time.Millisecond
	}
	return config, nil
}

// openDatabase opens the pool, makes the table of orders, and closes the pool
// when everything else has stopped.
func openDatabase(lc fx.Lifecycle, s Settings) (*database.DB, *sql.DB, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	db, err := database.Open(ctx, s.DatabaseURL, filepath.Join(s.DataDir, "demo.db"))
	if err != nil {
		return nil, nil, err
	}
	if _, err := db.ExecContext(ctx, createOrders+db.TableOptions()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("making the table of orders in %s: %w", db.Where, err), db.Close())
	}
	lc.Append(fx.StopHook(func() {
		if err := db.Close(); err != nil { // a connection that the server has cut before
			slog.Info("closing the database", "error", err)
		}
	}))
	return db, db.DB, nil
}
