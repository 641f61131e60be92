// Withdb makes sure of the databases that the tests use and runs a command with
// their addresses in the environment:
//
//	go run ./internal/tools/withdb -- go test ./...
//
// Each database is taken from where it is found first: the variables
// OUTBOX_TEST_POSTGRES and OUTBOX_TEST_MYSQL; a server on the default local
// port; a private server from installed binaries, in .db/; the same after
// installing the system's packages, as root on Debian or Ubuntu; docker compose.
// It says for each where it is, or why it is missing, which fails when CI=true.
// Private servers are stopped when the command ends; -keep leaves them running
// for the next time, -down stops them and deletes their files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

func main() {
	keep := flag.Bool("keep", false, "leave private servers running")
	down := flag.Bool("down", false, "stop private servers and delete their files")
	flag.Parse()
	root, err := filepath.Abs(".db")
	if err != nil {
		fail(err)
	}
	if *down {
		fail(stopAll(root))
		return
	}
	os.Exit(run(root, *keep, flag.Args()))
}

// run returns the exit status.
func run(root string, keep bool, command []string) int {
	// A signal ends the command, and then what was started for it.
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	missing := false
	for _, s := range servers(root) {
		where, err := s.ensure()
		if err != nil {
			missing = true
			say("%s: NOT tested: %s", s.name, strings.Join(strings.Fields(err.Error()), " "))
			continue
		}
		say("%s: tested, %s", s.name, where)
		if s.started && !keep {
			defer s.stop()
		}
	}
	say("SQLite: tested, files of the tests' own")
	if missing && os.Getenv("CI") == "true" {
		say("CI=true: a missing database is a failure")
		return 1
	}
	if ctx.Err() != nil {
		return 1
	}
	if len(command) == 0 {
		return 0
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil:
		say("%v", err)
		return 1
	}
	return 0
}

// server is a kind of database that the tests need.
type server struct {
	name, variable, driver, defaultDSN string
	dsn                                func() string // from the variable
	private                            private
	started                            bool
}

func servers(root string) []*server {
	return []*server{
		{
			name: "PostgreSQL", variable: testdb.PostgresVar, driver: "pgx",
			defaultDSN: testdb.DefaultPostgres, dsn: testdb.PostgresDSN,
			private: &privatePostgres{dir: filepath.Join(root, "postgres")},
		},
		{
			name: "MariaDB/MySQL", variable: testdb.MySQLVar, driver: "mysql",
			defaultDSN: testdb.DefaultMySQL, dsn: testdb.MySQLDSN,
			private: &privateMySQL{dir: filepath.Join(root, "mysql")},
		},
	}
}

// ensure finds or starts the server and puts its address into the environment.
func (s *server) ensure() (where string, err error) {
	if os.Getenv(s.variable) != "" {
		if err := testdb.Ping(s.driver, s.dsn()); err != nil {
			return "", fmt.Errorf("%s is set, but: %w", s.variable, err)
		}
		return "given by " + s.variable, nil
	}
	if os.Getenv("OUTBOX_TEST_PRIVATE") == "" && testdb.Ping(s.driver, s.defaultDSN) == nil {
		return "answering on its default local port", nil
	}
	var errs []error
	for _, way := range []struct {
		how string
		try func() (dsn string, err error)
	}{
		{"a private server in .db", s.startPrivate},
		{"a private server in .db, of newly installed packages", s.installAndStart},
		{"docker compose", s.compose},
	} {
		dsn, err := way.try()
		if err == nil {
			return way.how, os.Setenv(s.variable, dsn)
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func (s *server) startPrivate() (string, error) {
	note := filepath.Join(s.private.home(), "dsn")
	if kept, err := os.ReadFile(note); err == nil && testdb.Ping(s.driver, string(kept)) == nil {
		return string(kept), nil // left running by -keep
	}
	dsn, err := s.private.start()
	if err != nil {
		return "", err
	}
	if err := await(s.driver, dsn); err != nil {
		_ = s.private.stop()
		return "", fmt.Errorf("the private server does not answer (see %s): %w", filepath.Join(s.private.home(), "log"), err)
	}
	s.started = true
	return dsn, os.WriteFile(note, []byte(dsn), 0o644)
}

func (s *server) installAndStart() (string, error) {
	if err := install(s.private.packages()); err != nil {
		return "", err
	}
	return s.startPrivate()
}

func (s *server) stop() {
	if err := s.private.stop(); err != nil {
		say("stopping %s: %v", s.name, err)
	}
}

func stopAll(root string) error {
	var errs []error
	for _, s := range servers(root) {
		errs = append(errs, s.private.stop(), remove(s.private.home()))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "databases: "+format+"\n", args...) }

func fail(err error) {
	if err != nil {
		say("%v", err)
		os.Exit(1)
	}
}
