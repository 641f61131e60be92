package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

var (
	errNotInstalled = errors.New("not installed")
	errEnded        = errors.New("the private server ended")
	errInUse        = errors.New("in use by another run")
)

// server is a kind of database that the tests need.
type server struct {
	name, variable, driver, defaultDSN string
	dsn                                func() string // from the variable
	private                            private
	ping                               func(driver, dsn string) error
	install                            func(ctx context.Context, packages []string) error
	compose                            func(ctx context.Context) (dsn string, err error)
	tree                               string   // of the private server's programs, if not the system's
	users                              *os.File // a shared lock while this run uses the private server
}

// servers are PostgreSQL and MySQL. A tree has the programs of a private server; empty: the
// system's programs.
func servers(root, postgresTree, mysqlTree string) []*server {
	home := func(kind, tree string) string {
		if tree != "" {
			kind += "-" + filepath.Base(tree)
		}
		return filepath.Join(root, kind)
	}
	return []*server{serverAt(home("postgres", postgresTree), postgresTree), serverAt(home("mysql", mysqlTree), mysqlTree)}
}

// serverAt is the server with this home for private files; the folder's name begins with
// the kind of database.
func serverAt(home, tree string) *server {
	s := &server{
		name: "MariaDB/MySQL", variable: testdb.MySQLVar, driver: "mysql",
		defaultDSN: testdb.DefaultMySQL, dsn: testdb.MySQLDSN,
		private: &privateMySQL{dir: home, tree: tree}, tree: tree,
	}
	if strings.HasPrefix(filepath.Base(home), "postgres") {
		s = &server{
			name: "PostgreSQL", variable: testdb.PostgresVar, driver: "pgx",
			defaultDSN: testdb.DefaultPostgres, dsn: testdb.PostgresDSN,
			private: &privatePostgres{dir: home, tree: tree}, tree: tree,
		}
	}
	s.ping, s.install, s.compose = testdb.Ping, install, s.composeUp
	return s
}

// ensure finds or starts the server and puts the address into the environment.
func (s *server) ensure(ctx context.Context) (where string, err error) {
	if s.tree != "" {
		dsn, err := s.startPrivate(ctx)
		if err != nil {
			return "", err
		}
		return "a private server of " + s.tree, os.Setenv(s.variable, dsn)
	}
	if os.Getenv(s.variable) != "" {
		if err := s.ping(s.driver, s.dsn()); err != nil {
			return "", fmt.Errorf("%s is set, but: %w", s.variable, err)
		}
		return "given by " + s.variable, nil
	}
	if os.Getenv("OUTBOX_TEST_PRIVATE") == "" && s.ping(s.driver, s.defaultDSN) == nil {
		return "answering on its default local port", nil
	}
	where = "a private server in .db"
	dsn, err := s.startPrivate(ctx)
	if errors.Is(err, errNotInstalled) && ctx.Err() == nil {
		where += ", of newly installed packages"
		if failed := s.install(ctx, s.private.packages()); failed != nil {
			err = errors.Join(err, failed)
		} else {
			dsn, err = s.startPrivate(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		where = "docker compose"
		var failed error
		if dsn, failed = s.compose(ctx); failed == nil {
			err = nil
		} else {
			err = errors.Join(err, failed)
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", err
	}
	return where, os.Setenv(s.variable, dsn)
}

// startPrivate joins the other runs that use the private server, or starts the server.
func (s *server) startPrivate(ctx context.Context) (dsn string, err error) {
	turn, err := lock(ctx, s.private.home()+".turn", syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer func() { _ = turn.Close() }()
	users, err := lock(ctx, s.private.home()+".users", syscall.LOCK_SH)
	if err != nil {
		return "", err
	}
	if dsn, err = s.joinOrStart(ctx); err != nil {
		_ = users.Close()
		return "", err
	}
	s.users = users
	return dsn, nil
}

func (s *server) joinOrStart(ctx context.Context) (dsn string, err error) {
	kept, err := os.ReadFile(s.note("dsn"))
	if err == nil && s.private.running() && s.ping(s.driver, string(kept)) == nil {
		return string(kept), nil
	}
	for range 3 { // another process may take the free port first
		if dsn, err = s.start(ctx); !errors.Is(err, errEnded) {
			break
		}
	}
	return dsn, err
}

func (s *server) start(ctx context.Context) (string, error) {
	dsn, ended, err := s.private.start(ctx)
	if err != nil {
		return "", err
	}
	if err = await(ctx, s.ping, s.driver, dsn, ended); err != nil {
		err = fmt.Errorf("%w (see %s)", err, s.note("log"))
	} else {
		_ = os.Remove(s.note("keep"))
		err = os.WriteFile(s.note("dsn"), []byte(dsn), 0o644)
	}
	if err != nil {
		return "", errors.Join(err, s.private.stop())
	}
	return dsn, nil
}

// leave stops the private server, unless another run uses the server and will stop it, or a run has
// asked to keep the server.
func (s *server) leave(keep bool) error {
	if s.users == nil {
		return nil
	}
	defer func() { _ = s.users.Close() }()
	turn, err := lock(context.Background(), s.private.home()+".turn", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = turn.Close() }()
	if keep {
		return os.WriteFile(s.note("keep"), nil, 0o644)
	}
	if _, err := os.Stat(s.note("keep")); err == nil {
		return nil
	}
	if err := syscall.Flock(int(s.users.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	return s.private.stop()
}

// remove stops the private server and deletes its files, unless a run uses the server.
func (s *server) remove(ctx context.Context) error {
	home := s.private.home()
	turn, err := lock(ctx, home+".turn", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = turn.Close() }()
	users, err := tryLock(home+".users", syscall.LOCK_EX)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", s.name, errInUse)
	}
	if err != nil {
		return err
	}
	defer func() { _ = users.Close() }()
	if err := s.private.stop(); err != nil { // the server's files are in use
		return err
	}
	return errors.Join(removeHome(home), os.Remove(users.Name()), os.Remove(turn.Name()))
}

func (s *server) note(name string) string { return filepath.Join(s.private.home(), name) }

// await waits until the server answers, for a minute at most.
func await(ctx context.Context, ping func(driver, dsn string) error, driver, dsn string, ended <-chan struct{}) error {
	deadline := time.After(time.Minute)
	for {
		err := ping(driver, dsn)
		select {
		case <-ended: // another server answers
			return errors.Join(errEnded, err)
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.Join(errEnded, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return fmt.Errorf("the server does not answer: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
