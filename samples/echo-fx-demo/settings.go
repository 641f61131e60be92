package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

// Settings are the values of flags and variables.
type Settings struct {
	Addr        string // host:port; -addr or ADDR
	DataDir     string // -data or DATA_DIR
	DatabaseURL string // DATABASE_URL
	Password    string // of /admin; ADMIN_PASSWORD, or random
	Config      string // the outbox's YAML file; -config
	Traces      string // none, console or otlp; OTEL_TRACES_EXPORTER
	Tour        bool   // -tour

	GivenPassword bool // the password must not be printed
}

// variables is the end of the help text.
const variables = `
Variables:
  ADDR, DATA_DIR            for -addr and -data
  DATABASE_URL              postgres://… or mysql://…; by default a SQLite file in the data folder
  ADMIN_PASSWORD            for /admin/outbox; random by default
  OUTBOX_…                  settings of the outbox; see docs/reference/configuration.md
  OTEL_TRACES_EXPORTER      where spans go: none (the default), console or otlp
  OTEL_EXPORTER_OTLP_…      of otlp, over HTTP: …_ENDPOINT is http://localhost:4318 by default
  OTEL_SERVICE_NAME         the name of the service; echo-fx-demo by default
  OTEL_RESOURCE_ATTRIBUTES  more attributes of the service

GET /metrics answers with metrics for Prometheus, GET /healthz with the health.
`

// readSettings reads flags and variables, and fills in the defaults.
func readSettings(args []string, getenv func(string) string) (Settings, error) {
	or := func(name, otherwise string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return otherwise
	}
	s := Settings{
		DatabaseURL: getenv("DATABASE_URL"), Traces: strings.ToLower(strings.TrimSpace(getenv("OTEL_TRACES_EXPORTER"))),
		Password: or("ADMIN_PASSWORD", rand.Text()[:12]), GivenPassword: getenv("ADMIN_PASSWORD") != "",
	}
	flags := flag.NewFlagSet("echo-fx-demo", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "echo-fx-demo is an order service with an outbox.\n\nFlags:")
		flags.PrintDefaults()
		_, _ = fmt.Fprint(flags.Output(), variables)
	}
	flags.StringVar(&s.Addr, "addr", or("ADDR", ":8080"), "where to serve")
	flags.StringVar(&s.DataDir, "data", getenv("DATA_DIR"), "folder for the SQLite file and the list of deliveries; by default one under the user's cache")
	flags.StringVar(&s.Config, "config", "", "YAML file with settings of the outbox; variables OUTBOX_… override it")
	flags.BoolVar(&s.Tour, "tour", false, "try everything once, print what happened, and end")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("the argument %q is unexpected", flags.Arg(0))
	}
	if s.DataDir == "" && !s.Tour {
		cache, err := os.UserCacheDir()
		if err != nil {
			return s, fmt.Errorf("finding a folder for the data; set -data: %w", err)
		}
		s.DataDir = filepath.Join(cache, "outbox-go", "echo-fx-demo")
	}
	return s, nil
}

// outboxConfig reads the outbox's YAML file and variables.
func outboxConfig(s Settings) (outboxfx.Config, error) {
	config, err := outboxconf.Load(s.Config)
	config.CreateSchema = true       // in production, migrations create the table
	config.Purge.Enabled = new(true) // without it, "Purge old rows" on the outbox's page would be refused
	return config, err
}
